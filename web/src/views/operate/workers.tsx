// Workers: machines, what they have and lack, their replicas; drain, and the command that joins another.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import { videoModels } from "../../api/models";
import type { Gpu, JoinCodeShown, WorkerShown } from "../../api/schema";
import { explain } from "../../api/words";
import { bytes, duration, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Dialog, Empty, Failed, Spinner } from "../../ui/controls";
import { Copyable } from "../../ui/copyable";
import { say } from "../../ui/toasts";
import { Loaded, usePolled } from "../../ui/polled";

const CODE_S = 900;

export function WorkersTab() {
  const polled = usePolled(async () => (await call("GET /workers", {})).data, 3_000);
  const joining = useSignal(false);
  const evicting = useSignal<WorkerShown | null>(null);
  return (
    <section aria-labelledby="workers-title">
      <div class="row row-spread">
        <h2 id="workers-title">{t("operate.workers")}</h2>
        <Button kind="primary" icon="plus" onClick={() => (joining.value = true)}>
          {t("workers.join")}
        </Button>
      </div>
      <Loaded polled={polled}>
        {(workers) =>
          workers.length === 0 ? (
            <Empty icon="machine" title={t("workers.none")}>
              <p>{t("workers.none_hint")}</p>
            </Empty>
          ) : (
            <ul class="rows">
              {workers.map((worker) => (
                <Row key={worker.id} worker={worker} onChanged={polled.again} onEvict={() => (evicting.value = worker)} />
              ))}
            </ul>
          )
        }
      </Loaded>
      {joining.value && <JoinDialog workers={polled.value ?? []} onClose={() => (joining.value = false)} />}
      {evicting.value !== null && <EvictDialog worker={evicting.value} onClose={() => (evicting.value = null)} onDone={polled.again} />}
    </section>
  );
}

function Row({ worker, onChanged, onEvict }: { worker: WorkerShown; onChanged: () => void; onEvict: () => void }) {
  const { busy, act } = useAct();
  const drain = (draining: boolean) =>
    act(async () => {
      await call("POST /workers/{worker_id}/drain", { path: { worker_id: worker.id }, body: { draining } });
      onChanged();
    });
  const standing = worker.draining ? "draining" : worker.machine === null ? "unheard" : worker.standing;
  const machine = worker.machine;
  return (
    <li class="entry">
      <div class="entry-main">
        <h3>{worker.name || worker.id}</h3>
        <p>
          <span class="state" data-state={standing}>
            {t(`worker.${standing}`)}
          </span>
          {worker.heard_ago_s != null && <span class="quiet">{t("workers.heartbeat", { time: duration(worker.heard_ago_s) })}</span>}
        </p>
        <p class="facts">
          <span>{worker.url.startsWith("tunnel:") ? t("workers.tunnel") : worker.url}</span>
          {machine && <span>{t("workers.cpus", { n: machine.cpus })}</span>}
          {machine && <span>{machine.engines.map((engine) => t(`engine.${engine}`)).join(", ")}</span>}
        </p>
        <MachineShown worker={worker} />
        {worker.replicas.length > 0 && (
          <ul class="replicas" aria-label={t("workers.replicas")}>
            {worker.replicas.map((replica) => (
              <li key={replica.id} title={replica.detail || undefined}>
                <span class="state" data-state={replica.phase}>
                  {replica.model ?? replica.id}
                </span>
                <span class="quiet">
                  {t(`phase.${replica.phase}`)}
                  {gangOf(replica.model)}
                  {replica.gpus.length > 0 && ` · ${t("workers.gpus", { list: replica.gpus.join(", ") })}`}
                  {replica.busy > 0 && ` · ${t("workers.busy", { n: replica.busy })}`}
                </span>
              </li>
            ))}
          </ul>
        )}
      </div>
      <div class="entry-actions">
        <Button busy={busy.value} icon={worker.draining ? "bolt" : "out"} onClick={() => void drain(!worker.draining)}>
          {t(worker.draining ? "workers.undrain" : "workers.drain")}
        </Button>
        <Button kind="danger" icon="close" aria-label={t("workers.evict_name", { name: worker.name || worker.id })} onClick={onEvict}>
          {t("workers.evict")}
        </Button>
      </div>
    </li>
  );
}

/** What a machine has, what it lacks and why, and which registered models fit there. */
function MachineShown({ worker }: { worker: WorkerShown }) {
  const machine = worker.machine;
  if (machine === null) return null;
  return (
    <>
      <div class="meters">
        <Meter name={t("workers.memory")} total={machine.memory_bytes} free={machine.free_memory_bytes} />
        {machine.disk_bytes > 0 && <Meter name={t("workers.disk")} total={machine.disk_bytes} free={machine.free_disk_bytes} />}
        {machine.gpus.map((gpu: Gpu) => (
          <Meter key={gpu.index} name={`GPU ${gpu.index}${gpu.name ? ` · ${gpu.name}` : ""}`} total={gpu.total_bytes} free={gpu.free_bytes} />
        ))}
      </div>
      <p class="facts">
        <span>{worker.could_run.length > 0 ? t("workers.could_run", { list: worker.could_run.join(", ") }) : t("workers.could_run_none")}</span>
      </p>
      {machine.findings.length > 0 && (
        <ul class="findings" aria-label={t("workers.findings")}>
          {machine.findings.map((one) => (
            <li key={one.about}>
              <span>{lacking(one.about)}</span> <span class="quiet">{one.reason}</span>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** In words; a newer worker may find what this page has no words for. */
function lacking(about: string): string {
  switch (about) {
    case "wan":
    case "vllm":
    case "llamacpp":
      return t("workers.lacks", { what: t(`engine.${about}`) });
    case "gpus":
      return t("workers.no_gpus");
    default:
      return t("workers.lacks", { what: about });
  }
}

/** How many ranks a replica of a video model has, in words; nothing for an engine server. */
function gangOf(name: string | null | undefined): string {
  const model = videoModels.value.find((one) => one.id === name);
  return model ? ` · ${t("workers.gang", { n: model.ranks })}` : "";
}

function Meter({ name, total, free }: { name: string; total: number; free: number }) {
  const used = Math.max(0, total - free);
  return (
    <div class="meter">
      <span>{name}</span>
      <span class="num">{t("workers.used", { used: bytes(used), total: bytes(total) })}</span>
      <meter min={0} max={total || 1} value={used} aria-label={name} />
    </div>
  );
}

function EvictDialog({ worker, onClose, onDone }: { worker: WorkerShown; onClose: () => void; onDone: () => void }) {
  const name = worker.name || worker.id;
  const { act } = useAct();
  const evict = async () => {
    await act(async () => {
      await call("DELETE /workers/{worker_id}", { path: { worker_id: worker.id } });
      say(t("workers.evicted", { name }));
      onDone();
    });
    onClose();
  };
  return (
    <Dialog title={t("workers.evict_title", { name })} onClose={onClose}>
      <p>{t("workers.evict_about")}</p>
      <div class="row row-end">
        <Button onClick={onClose}>{t("cancel")}</Button>
        <Button kind="danger" icon="close" onClick={() => void evict()}>{t("workers.evict")}</Button>
      </div>
    </Dialog>
  );
}

/** A code is made when it is asked for, and shown here once. Whoever was not there before then has joined by it, or so it seems. */
function JoinDialog({ workers, onClose }: { workers: readonly WorkerShown[]; onClose: () => void }) {
  const made = useSignal<{ shown: JoinCodeShown; before: ReadonlySet<string> } | null>(null);
  const problem = useSignal<unknown>(null);
  const busy = useSignal(false);
  const make = async () => {
    busy.value = true;
    try {
      const before = new Set((await call("GET /workers", {})).data.map((worker) => worker.id));
      const shown = await call("POST /workers/join-codes", { body: { expires_in_s: CODE_S, url: location.origin } });
      made.value = { shown, before };
      problem.value = null;
    } catch (err) {
      problem.value = err;
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog title={t("workers.join")} onClose={onClose}>
      <p>{t("workers.join_about")}</p>
      {problem.value !== null && <Failed words={explain(problem.value)} />}
      {made.value === null ? (
        <div class="row row-end">
          {busy.value && <Spinner />}
          <Button kind="primary" icon="key" onClick={() => void make()}>
            {t("workers.make_code")}
          </Button>
        </div>
      ) : (
        <>
          <Copyable label="workers.command" text={made.value.shown.command} />
          <p class="field-hint">{t("workers.code_once", { time: duration(CODE_S) })}</p>
          {isLoopback(made.value.shown.url) && <p class="field-hint">{t("workers.code_here")}</p>}
          {made.value.shown.command.includes("--allow-plaintext") && <p class="field-hint">{t("workers.code_plain")}</p>}
          <div role="status">
            <Joined workers={workers.filter((worker) => worker.machine !== null && !made.value?.before.has(worker.id))} />
          </div>
        </>
      )}
    </Dialog>
  );
}

function Joined({ workers }: { workers: readonly WorkerShown[] }) {
  if (workers.length === 0)
    return (
      <p class="row quiet">
        <Spinner /> {t("workers.waiting")}
      </p>
    );
  return (
    <ul class="rows">
      {workers.map((worker) => (
        <li key={worker.id} class="entry">
          <div class="entry-main">
            <h3>{t("workers.joined", { name: worker.name || worker.id })}</h3>
            <MachineShown worker={worker} />
          </div>
        </li>
      ))}
    </ul>
  );
}

function isLoopback(url: string): boolean {
  return /^https?:\/\/(localhost|127\.[\d.]+|\[::1\])(:|$)/.test(url);
}
