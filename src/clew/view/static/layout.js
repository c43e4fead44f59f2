// Where the nodes of a state graph lie: in columns by how soon a run gets there, in each ordered to cross little.

/** Nodes get x and y in pixels, columns along the longer side of the room there is; gives {width, height}. */
export function layout(nodes, edges, { width, height }) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const out = new Map(nodes.map((node) => [node.id, []]));
  const into = new Map(nodes.map((node) => [node.id, []]));
  for (const edge of edges) {
    if (edge.from === edge.to || !byId.has(edge.from) || !byId.has(edge.to)) continue;
    out.get(edge.from).push(edge.to);
    into.get(edge.to).push(edge.from);
  }
  const columns = depths(nodes, out);
  for (let sweep = 0; sweep < 8; sweep++) {
    const near = sweep % 2 ? out : into;
    for (const column of sweep % 2 ? [...columns].reverse() : columns) order(column, near, byId);
  }
  const tall = height > width * 1.1 || width < 520;
  const most = Math.max(1, ...columns.map((column) => column.length));
  const between = (value, low, high) => Math.max(low, Math.min(high, value));
  const along = between((tall ? height : width) / columns.length, tall ? 52 : 74, 170);
  const aside = between((tall ? width : height) / most, tall ? 58 : 40, 96);
  const [length, breadth] = [columns.length * along, most * aside];
  columns.forEach((column, rank) => {
    const gap = Math.min(aside * 2, breadth / column.length);
    column.forEach((node, i) => {
      const [u, v] = [(rank + 0.5) * along + ((i % 2) - 0.5) * Math.min(14, along / 6), breadth / 2 + (i - (column.length - 1) / 2) * gap];
      [node.x, node.y] = tall ? [v, u] : [u, v];
    });
  });
  return tall ? { width: breadth, height: length } : { width: length, height: breadth };
}

/** Columns of nodes: fewest transitions from a start; what no start reaches begins a column of its own. */
function depths(nodes, out) {
  const depth = new Map();
  const starts = nodes.filter((node) => node.start);
  const rest = nodes.filter((node) => !node.start).sort((a, b) => b.visits - a.visits);
  for (const first of [...starts, ...rest]) {
    if (depth.has(first.id)) continue;
    const queue = starts.includes(first) ? starts.map((node) => node.id) : [first.id];
    for (const id of queue) if (!depth.has(id)) depth.set(id, 0);
    for (let at = 0; at < queue.length; at++)
      for (const to of out.get(queue[at]))
        if (!depth.has(to)) {
          depth.set(to, depth.get(queue[at]) + 1);
          queue.push(to);
        }
  }
  const columns = [];
  for (const node of nodes) (columns[depth.get(node.id)] ??= []).push(node);
  for (const column of columns) column.forEach((node, rank) => (node.rank = rank / column.length));
  return columns;
}

function order(column, near, byId) {
  for (const node of column) {
    const ranks = near.get(node.id).map((id) => byId.get(id).rank);
    node.pull = ranks.length ? ranks.reduce((a, b) => a + b, 0) / ranks.length : node.rank;
  }
  column.sort((a, b) => a.pull - b.pull);
  column.forEach((node, rank) => (node.rank = (rank + 0.5) / column.length));
}

/** The line of a transition: curved to one side, so that there and back are two; a loop where nothing
 * changes. `nth` tells apart several actions that lead from one state to the same other. */
export function curve(a, b, size, nth = 0) {
  if (a === b) {
    const top = a.y - size(a) + 1;
    const reach = 26 + 16 * nth;
    return `M${a.x - 4},${top} C${a.x - reach * 0.8},${top - reach} ${a.x + reach * 0.8},${top - reach} ${a.x + 4},${top}`;
  }
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const length = Math.hypot(dx, dy) || 1;
  const bend = Math.min(18, length * 0.12) + nth * 22;
  const [cx, cy] = [(a.x + b.x) / 2 + (dy / length) * bend, (a.y + b.y) / 2 - (dx / length) * bend];
  const trim = (from, to, by) => {
    const far = Math.hypot(to[0] - from.x, to[1] - from.y) || 1;
    return [from.x + ((to[0] - from.x) / far) * by, from.y + ((to[1] - from.y) / far) * by];
  };
  const [sx, sy] = trim(a, [cx, cy], size(a));
  const [ex, ey] = trim(b, [cx, cy], size(b) + 5);
  return `M${sx.toFixed(1)},${sy.toFixed(1)} Q${cx.toFixed(1)},${cy.toFixed(1)} ${ex.toFixed(1)},${ey.toFixed(1)}`;
}
