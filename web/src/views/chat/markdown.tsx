// Markdown of a model, which nobody vouches for: marked makes HTML of it, DOMPurify keeps what is harmless.
//
// Every block of the text is a component of its own: while an answer streams, only its last block is made anew.
import DOMPurify from "dompurify";
import { Marked, type Token, type TokensList } from "marked";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";

// HTML in an answer is shown as what it is, text. DOMPurify would drop what is harmful, but already parsing a <style>
// makes Chromium report a breach of the CSP.
const marked = new Marked({ gfm: true, breaks: true, async: false, renderer: { html: ({ text }) => escaped(text) } });

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

const ALLOWED = {
  ALLOWED_TAGS: ["p", "br", "hr", "em", "strong", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4", "h5", "h6", "a", "table", "thead", "tbody", "tr", "th", "td", "sup", "sub"],
  ALLOWED_ATTR: ["href", "title", "start", "align"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    // A link of a stranger: it learns nothing of this page.
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  if (node.nodeName === "PRE") node.setAttribute("tabindex", "0"); // it may scroll, so the keyboard must reach it
});

export function Markdown({ text }: { text: string }) {
  const tokens = useMemo(() => marked.lexer(text), [text]);
  return (
    <div class="markdown">
      {tokens.filter((token) => token.type !== "space").map((token, i) => (
        <Block key={`${i}-${token.type}`} token={token} links={tokens.links} />
      ))}
    </div>
  );
}

function Block({ token, links }: { token: Token; links: TokensList["links"] }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const html = marked.parser(Object.assign([token], { links }));
    place.current?.replaceChildren(DOMPurify.sanitize(html, ALLOWED));
  }, [token.raw]);
  return <div ref={place} />;
}
