// Markdown of a model, which nobody vouches for: marked makes HTML of it, DOMPurify keeps what is harmless.
//
// Every block of the text is a component of its own: while an answer streams, only its last block is made anew.
import DOMPurify from "dompurify";
import { Marked, type Token, type TokensList } from "marked";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { t } from "../../i18n";
import { Button } from "../../ui/controls";
import { copy } from "../../ui/copyable";

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
  return token.type === "code" ? <Code code={String(token.text)} language={String(token.lang ?? "").split(/\s/)[0] ?? ""} /> : <Prose token={token} links={links} />;
}

function Prose({ token, links }: { token: Token; links: TokensList["links"] }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const html = marked.parser(Object.assign([token], { links }));
    place.current?.replaceChildren(DOMPurify.sanitize(html, ALLOWED));
  }, [token.raw]);
  return <div ref={place} />;
}

const COLOUR_AFTER_MS = 120; // of code that still grows, once it pauses
const SPANS = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true as const };

/** A block of code: its language, a button that copies it, and colours once they are loaded. */
function Code({ code, language }: { code: string; language: string }) {
  const place = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (place.current !== null) place.current.textContent = code;
    if (language === "") return;
    const timer = window.setTimeout(() => {
      void import("./highlight").then(({ colour }) => {
        const html = colour(code, language.toLowerCase());
        if (html !== null && place.current?.textContent === code) place.current.replaceChildren(DOMPurify.sanitize(html, SPANS));
      });
    }, COLOUR_AFTER_MS);
    return () => window.clearTimeout(timer);
  }, [code, language]);
  return (
    <div class="code">
      <div class="code-head">
        <span>{language}</span>
        <Button kind="quiet" icon="copy" onClick={() => void copy(code)}>
          {t("chat.copy_code")}
        </Button>
      </div>
      <pre tabIndex={0}>
        <code ref={place} />
      </pre>
    </div>
  );
}
