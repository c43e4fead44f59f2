"""The stops of `clew tour`: eighteen methods, one after another, on one store. `clew.cli.tour` walks them."""
