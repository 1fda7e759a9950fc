// SQL with its keywords, strings, numbers and comments marked: each piece is a text node.
import { h } from "../dom.js";

const TOKENS = new RegExp(
  [
    String.raw`(?<hint>/\*\+[\s\S]*?\*/)`,
    String.raw`(?<comment>--[^\n]*|/\*[\s\S]*?\*/)`,
    String.raw`(?<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*")`,
    String.raw`(?<quoted>${"`"}[^${"`"}]*${"`"})`,
    String.raw`(?<numeral>\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)`,
    String.raw`(?<keyword>\b(?:SELECT|FROM|WHERE|GROUP|BY|HAVING|ORDER|AS|AND|OR|NOT|IN|IS|NULL|TRUE|FALSE|LIKE|ILIKE|RLIKE|BETWEEN|CASE|WHEN|THEN|ELSE|END|JOIN|LEFT|RIGHT|FULL|OUTER|INNER|CROSS|ON|USING|CREATE|VIEW|TABLE|OPTIONS|INTERVAL|CAST|DISTINCT|WITH|UNION|ALL|EXISTS|LIMIT|OVER|PARTITION|ASC|DESC)\b)`,
  ].join("|"),
  "gi",
);

export function sql(text) {
  const pieces = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    const [kind, token] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    if (match.index > end) pieces.push(text.slice(end, match.index));
    pieces.push(kind === "quoted" ? token : h("span", { class: kind }, token));
    end = match.index + token.length;
  }
  return h("pre", { class: "sql", tabindex: "0" }, h("code", null, pieces, text.slice(end)));
}
