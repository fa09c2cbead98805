/** 32 random hexadecimal digits. Browsers leave `randomUUID` out where the page is reached by plain http from another machine. */
export function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
