// Logging in and out, and finding out who the person is.
import { currentKey, forgetKey, login, rememberedKey, rememberKey, useKey, type Person } from "./auth";
import { ApiError, call } from "./http";

/** At the page's start: a one-time code in the fragment, a remembered key, or a cookie from before. */
export async function begin(code: string | null): Promise<void> {
  if (code !== null) return await enterByCode(code);
  useKey(rememberedKey());
  try {
    const person = await whoami();
    login.value = person === null ? { state: "out", why: "none" } : { state: "in", person, by: currentKey() === null ? "session" : "key" };
  } catch (err) {
    if (!(err instanceof ApiError)) throw err;
    if (currentKey() !== null) forgetKey();
    login.value = { state: "out", why: "none" };
  }
}

async function enterByCode(code: string): Promise<void> {
  useKey(null);
  try {
    const person = await call("POST /v1/session", { body: { code } });
    login.value = { state: "in", person, by: "session" };
  } catch (err) {
    if (!(err instanceof ApiError)) throw err;
    login.value = { state: "out", why: "refused_code" };
  }
}

/** Logs in by an API key; raises ApiError when it is refused. */
export async function enterByKey(key: string, remember: boolean): Promise<void> {
  useKey(key);
  try {
    const person = await whoami();
    if (person === null) throw new ApiError(401, "", "invalid_api_key", null, null);
    if (remember) rememberKey(key);
    login.value = { state: "in", person, by: "key" };
  } catch (err) {
    useKey(null);
    throw err;
  }
}

export async function leave(): Promise<void> {
  const now = login.peek();
  if (now.state === "in" && now.by === "session") await call("DELETE /v1/session", {}).catch(() => undefined);
  forgetKey();
  login.value = { state: "out", why: "none" };
}

/** Null: there is neither a key nor a cookie that is valid. A key that is not raises ApiError. */
async function whoami(): Promise<Person | null> {
  return await call("GET /v1/session", {}); // 204: null
}
