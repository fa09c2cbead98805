// Logging in and out, and finding out who the person is.
import { login, type Person, type Why } from "./auth";
import { ApiError, call } from "./http";
import { acceptedTerms } from "./site";
import { storedText, storeText } from "../ui/stored";

const STORED = "turnout.key"; // where pages up to 0.3.0 kept a key

/** At the page's start: a one-time code in the fragment, or a cookie from before. `why` is what came of a login by the issuer. */
export async function begin(code: string | null, why: Why): Promise<void> {
  if (code !== null) return await enterByCode(code);
  const left = storedText(STORED);
  if (left !== null && (await enterByStoredKey(left))) return;
  const person = await whoami();
  login.value = person === null ? { state: "out", why } : { state: "in", person };
}

async function enterByCode(code: string): Promise<void> {
  try {
    login.value = { state: "in", person: await call("POST /v1/session", { body: { code } }) };
  } catch (err) {
    if (!(err instanceof ApiError)) throw err;
    login.value = { state: "out", why: "refused_code" };
  }
}

/** Changes an API key for a session; raises ApiError when it is refused. The key is kept nowhere. */
export async function enterByKey(key: string, remember: boolean): Promise<void> {
  login.value = { state: "in", person: await call("POST /v1/session", { body: { key, remember } }) };
}

/** Comes in by an invite; raises ApiError when it is refused. */
export async function enterByInvite(invite: string, who: { name: string; email: string } | null, remember: boolean): Promise<void> {
  login.value = { state: "in", person: await call("POST /v1/login/invite", { body: { invite, ...who, ...acceptedTerms(), remember } }) };
}

/** Comes in without an account; raises ApiError when there are too many. */
export async function enterAsGuest(): Promise<void> {
  login.value = { state: "in", person: await call("POST /v1/login/guest", { body: acceptedTerms() }) };
}

export async function leave(): Promise<void> {
  await call("DELETE /v1/session", {}).catch(() => undefined);
  login.value = { state: "out", why: "none" };
}

/** Null: there is no cookie that is valid. */
async function whoami(): Promise<Person | null> {
  return await call("GET /v1/session", {}); // 204: null
}

async function enterByStoredKey(key: string): Promise<boolean> {
  const entered = await enterByKey(key, true).then(
    () => true,
    (err: unknown) => {
      if (!(err instanceof ApiError)) throw err; // the gateway is away, and is asked again
      return false;
    },
  );
  storeText(STORED, null);
  return entered;
}
