// The characters of the one list of invisible characters, read from its source, for the tests of the page and the cards.
import fs from "node:fs";

const source = fs.readFileSync(new URL("../crates/policy/src/visible_text.rs", import.meta.url), "utf8");
const list = /const INVISIBLE: [^=]+= &\[([\s\S]*?)\n\];/.exec(source)[1];
const ranges = [...list.matchAll(/\('\\u\{([0-9a-f]+)\}', '\\u\{([0-9a-f]+)\}'\)/g)].map(([, first, last]) => [parseInt(first, 16), parseInt(last, 16)]);
if (ranges.length < 20) throw new Error(`only ${ranges.length} ranges found in the source of the list`);

const numbered = (codes) => codes.filter((code) => code < 0xd800 || code > 0xdfff).map((code) => `<${code.toString(16)}:${String.fromCodePoint(code)}>`).join("");
const every = ([first, last]) => (last - first < 64 ? Array.from({ length: last - first + 1 }, (_, at) => first + at) : [first, Math.floor((first + last) / 2), last]);

/** Every character of a short range and the first, a middle and the last one of a long range, each after its number: `<202e:…>`. */
export const TEXT = numbered(ranges.flatMap(every));
/** The ends of the ranges only: a reason has at most 1,000 characters. */
export const SHORT_TEXT = numbered(ranges.flat());

/** The samples of `text` that `shown` does not have as an escape, or has as themselves. Line breaks and tabs may stay. */
export function notEscaped(shown, text = TEXT) {
  const samples = [...text.matchAll(/<[0-9a-f]+:(.)>/gsu)].map(([, char]) => char).filter((char) => char !== "\n" && char !== "\t");
  const isFine = (char) => {
    const hex = char.codePointAt(0).toString(16);
    // Arguments are shown as JSON, which has escapes of its own.
    const escapes = [`\\u{${hex}}`, JSON.stringify(char).slice(1, -1)].filter((escape) => escape !== char);
    return !shown.includes(char) && escapes.some((escape) => shown.includes(`<${hex}:${escape}>`));
  };
  return samples.filter((char) => !isFine(char)).map((char) => `U+${char.codePointAt(0).toString(16)}`);
}
