"""Pairs of texts that a person labelled before the one reading of words was written, for tests and for comparing rules.

``contrary``: both cannot hold, and a memory that takes the later one must give up the older. ``same``: one of them is
enough. ``two``: both may hold, so that neither may go.
"""

from __future__ import annotations

CONTRARY = (
    ("The endpoint of bank that fetches is `search`.", "The endpoint of bank that fetches is `query`."),
    ("The bakery opens at six.", "The bakery opens at seven."),
    ("A page of orders has 20 rows.", "A page of orders has 50 rows."),
    ("Log in to the bank before you read.", "Log in to the bank after you read."),
    ("The endpoint of orders is search.", "The endpoint of orders is list_items."),
    ("Pending rows of the shop count.", "Pending rows of the shop don't count."),
    ("Never retry a payment of the bank.", "Retry a payment of the bank."),
    ("Submit the answer of mail in dollars.", "Submit the answer of mail in cents."),
    ("Amounts in bank are written in cents.", "Amounts in bank are written in dollars."),
    ("A user may try the password three times.", "A user may try the password five times."),
    ("The rows of club are sorted ascending by date.", "The rows of club are sorted descending by date."),
    ("A token of the shop lasts 10 minutes.", "A token of the shop lasts 60 minutes."),
    ("The field owner is required by the mail api.", "The field owner is optional for the mail api."),
    ("Pages of orders are counted from 0.", "Pages of orders are counted from 1."),
    ("Bank needs a login before the first fetch.", "Bank needs no login before the first fetch."),
    ("Deleting a row of music is allowed for guests.", "Deleting a row of music is forbidden for guests."),
    ("The list of travel includes rows that are pending.", "The list of travel excludes rows that are pending."),
    ("Refunds are made by the tool `refund_order`.", "Refunds are made by the tool `cancel_order`."),
    ("Always open the cart before paying.", "Never open the cart before paying."),
    ("The desk closes at 17:30 on Fridays.", "The desk closes at 16:00 on Fridays."),
)
SAME = (
    ("The endpoint of bank that fetches is `search`.", "`search` is the endpoint of bank that fetches."),
    ("Ask for the next page until has_more is false.", "Always ask for the next page until has_more is false."),
    ("Ask for the next page until has_more is false.", "Ask for the next page while has_more is false."),
    ("Pending rows are left out of sums in bank.", "In bank pending rows are left out of sums."),
    ("Don't pay an order of the shop twice.", "Do not pay an order of the shop twice."),
    ("Log in to mail before the first fetch.", "Before the first fetch, log in to mail."),
    ("Amounts in bank are in cents, so divide by 100.", "Amounts of bank are in cents: divide by 100."),
    ("A fetch without a login is answered with error 401.", "A fetch without login is answered with an error 401."),
)
TWO = (
    ("The bakery opens at six.", "The library opens at six."),
    ("The bakery opens at six.", "Bread can be bought from 7 o'clock on."),
    ("`login` of bank is called with one argument.", "`fetch` of bank is called with one argument."),
    ("Page 1 of orders is short.", "Page 2 of orders is short."),
    ("Log in to bank before the first fetch.", "Log in to bank before the first change."),
    ("The endpoint of bank that fetches is `search`.", "The endpoint of mail that fetches is `query`."),
    ("Rows of club are listed with dates.", "Rows of club are listed with owners."),
    ("The shop sells bread and cheese in the morning.", "The shop sells bread and milk in the morning."),
    ("Filter by the field date for questions of time.", "Filter by the field owner for questions of people."),
    ("Orders can be cancelled by their owner.", "Orders can be cancelled by an admin."),
    ("Error 401 means that a login is missing.", "Error 404 means that an endpoint is missing."),
    ("To sum rows, fetch all pages and add up.", "To count rows, fetch all pages and count them."),
    ("Do not send a mail to the sender.", "Send a copy of the mail to the archive."),
    ("Use `list_orders` to see the orders of a user.", "Use `list_users` to see the users of a shop."),
    ("A refund of the shop takes an order and a reason.", "A refund of the shop takes an order and an amount."),
    ("The house of bank was opened in spring.", "The house of bank was named by its owner."),
    ("Never change a row that is pending.", "Never delete a row that is pending."),
    ("Fetch the table payments for questions of bank.", "Fetch the table friends for questions of bank."),
    ("With a filter the api answers one page.", "Without a filter the api answers all pages."),
    ("When a page is empty, stop.", "When a page is not empty, go on."),
    ("The user ann is an admin.", "The user bob is an admin."),
    ("Step 1 is to log in.", "Step 2 is to fetch."),
    ("A guest may read the list.", "A member may change the list."),
    ("Sort by price to find the cheapest row.", "Sort by date to find the newest row."),
)

# Written after the rules were done, and never used to change them.
LATER_CONTRARY = (
    ("The coupon field of the shop takes 8 letters.", "The coupon field of the shop takes 12 letters."),
    ("Sessions of mail end after an hour.", "Sessions of mail never end after an hour."),
    ("Dates in travel are day first.", "Dates in travel are month first."),
    ("The archive of club is public.", "The archive of club is private."),
    ("The api of music answers the oldest row first.", "The api of music answers the newest row first."),
    ("A change of bank needs `id`.", "A change of bank needs `ids`."),
    ("Deleted rows of notes still count.", "Deleted rows of notes do not still count."),
    ("The price of travel includes tax.", "The price of travel is without tax."),
    ("Search before you list in club.", "List before you search in club."),
    ("The desk answers only to admins.", "The desk answers to everybody."),
)
LATER_TWO = (
    ("The coupon field of the shop takes 8 letters.", "The phone field of the shop takes 8 letters."),
    ("Sessions of mail end after an hour.", "Sessions of bank end after a day."),
    ("A row of club has a date and an owner.", "A row of club has a price and an owner."),
    ("Ask the desk for a key.", "Ask the desk for a map."),
    ("To pay, log in to bank and call pay.", "To like, log in to music and call like."),
    ("The api of music is slow in the morning.", "The api of music is slow in the evening."),
    ("A room of the hotel needs a deposit.", "A room of the hotel needs a passport."),
    ("Read the answer before you submit.", "Read the task before you submit."),
    ("If a search is empty, try another word.", "If a search is not empty, read the first row."),
    ("The list of travel can be sorted.", "The list of travel can be filtered."),
)
