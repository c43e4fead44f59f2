// JSON in lines, for reading: as it was written but for white space, so that no number loses digits and no name is lost.

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
const [LONGEST, SHORT] = [20_000, 72]; // characters of a value that is read; of one that stays on its line

/**
 * Lines of a JSON value, each {depth, text, inner}: `inner` are lines of a text with line breaks, which are shown as such.
 * null where the text is no JSON.
 */
export function jsonLines(text) {
  if (text.length > LONGEST) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  const out = [];
  let [line, depth] = ["", 0];
  const flush = () => {
    if (line) out.push({ depth, text: line });
    line = "";
  };
  const tokens = text.match(TOKEN) ?? [];
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i];
    if ("[{".includes(token)) {
      const end = short(tokens, i);
      if (end > i) {
        line += spaced(tokens.slice(i, end + 1));
        i = end;
      } else {
        line += token;
        flush();
        depth += 1;
      }
    } else if ("]}".includes(token)) {
      flush();
      depth -= 1;
      line = token;
    } else if (token === ",") {
      line += ",";
      flush();
    } else if (token === ":") line += ": ";
    else if (token.includes("\\n") && tokens[i + 1] !== ":") {
      line += '"';
      flush();
      for (const one of JSON.parse(token).split("\n")) out.push({ depth: depth + 1, text: one, inner: true });
      line = '"';
    } else line += token;
  }
  flush();
  return out;
}

/** Where a list or an object ends that holds no other and is short enough for one line; else -1. */
function short(tokens, from) {
  let length = 0;
  for (let i = from; i < tokens.length && length <= SHORT; i++) {
    length += tokens[i].length + 1;
    if ("]}".includes(tokens[i])) return length <= SHORT ? i : -1;
    if ((i > from && "[{".includes(tokens[i])) || tokens[i].includes("\\n")) return -1;
  }
  return -1;
}

const spaced = (tokens) => tokens.map((token) => (token === "," || token === ":" ? `${token} ` : token)).join("");
