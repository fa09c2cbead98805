// Line icons on a 24-pixel grid. They are decoration: the words beside them, or the button's label, say what they mean.
const PATHS = {
  create: "M12 4v16M4 12h16",
  library: "M4 5h7v6H4zM13 5h7v6h-7zM4 13h7v6H4zM13 13h7v6h-7z",
  chat: "M5 5h14a1 1 0 0 1 1 1v9a1 1 0 0 1-1 1h-7l-4.5 4v-4H5a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1z",
  operate: "M4 18V9M10 18V5M16 18v-7M21 20H3",
  sun: "M12 4V2M12 22v-2M4 12H2M22 12h-2M6.3 6.3 4.9 4.9M19.1 19.1l-1.4-1.4M6.3 17.7l-1.4 1.4M19.1 4.9l-1.4 1.4M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z",
  moon: "M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5z",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  out: "M10 5H5v14h5M14 8l4 4-4 4M18 12H9",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9.5h.01",
  close: "M6 6l12 12M18 6 6 18",
  more: "M5 11.5h1v1H5zM11.5 11.5h1v1h-1zM18 11.5h1v1h-1z",
  download: "M12 4v11M7.5 11 12 15.5 16.5 11M5 19.5h14",
  share: "M10 14l4-4M9 8l2.5-2.5a3.5 3.5 0 0 1 5 5L14 13M15 16l-2.5 2.5a3.5 3.5 0 0 1-5-5L10 11",
  retry: "M5 12a7 7 0 1 1 2.2 5.1M5 17.5V12.5h5",
  dice: "M5 5h14v14H5zM9 9h.01M15 15h.01M15 9h.01M9 15h.01M12 12h.01",
  remix: "M4 7h4l8 10h4M4 17h4l2-2.5M14 9.5 16 7h4M17.5 4.5 20 7l-2.5 2.5M17.5 14.5 20 17l-2.5 2.5",
  copy: "M9 9h10v10H9zM5 15V5h10",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12M10.5 11v5M13.5 11v5",
  search: "M11 5a6 6 0 1 0 0 12 6 6 0 0 0 0-12zM15.5 15.5 20 20",
  send: "M12 19V6M6 11.5 12 5.5l6 6",
  stop: "M7 7h10v10H7z",
  edit: "M5 19l1-4L16 5l3 3L9 18zM14 7l3 3",
  warn: "M12 5 3.5 19h17zM12 10.5v4M12 16.8h.01",
  check: "M5 12.5l4.5 4.5L19 7.5",
  before: "M14 7l-5 5 5 5",
  after: "M10 7l5 5-5 5",
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M8 6v12M16 6v12",
  compare: "M4 6h7v12H4zM13 6h7v12h-7z",
  history: "M12 7v5l3.5 2M5.5 8.5A7.5 7.5 0 1 1 4.5 12M4 5v4h4",
  gear: "M5 7h8M17 7h2M5 17h2M11 17h8M15 5v4M9 15v4",
  star: "M12 4.5l2.3 4.9 5.2.7-3.8 3.7.9 5.3-4.6-2.6-4.6 2.6.9-5.3-3.8-3.7 5.2-.7z",
  preset: "M6 4h12v16l-6-4-6 4z",
  key: "M14.5 4.5a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM11 13l-7 7M6.5 17.5 9 20M15.5 8.5h.01",
  bolt: "M13 3 6 13.5h5L10.5 21 18 10.5h-5z",
  machine: "M4 5h16v6H4zM4 13h16v6H4zM8 8h.01M8 16h.01",
  person: "M12 4a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM4.5 20a7.5 7.5 0 0 1 15 0",
  plus: "M12 6v12M6 12h12",
  wand: "M5 19 15 9M13 7l4 4M18 3v4M16 5h4M6 4v3M4.5 5.5h3M19 14v3M17.5 15.5h3",
  globe: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM4 12h16M12 4c3 3 3 13 0 16M12 4c-3 3-3 13 0 16",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 20 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="1.75" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** The mark: a line that branches, with a signal at the end of the branch. */
export function Mark({ size = 28 }: { size?: number }) {
  return (
    <svg class="mark" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" class="mark-ground" />
      <path d="M6 23h20M8 23c8 0 7-13 18-13" fill="none" class="mark-line" stroke-width="3" stroke-linecap="round" />
      <circle cx="26" cy="10" r="2.6" class="mark-signal" />
    </svg>
  );
}
