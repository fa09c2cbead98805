// What tenants may spend in a month, and what they have spent: see, set, remove.
import { useSignal } from "@preact/signals";
import { call } from "../../api/http";
import type { BudgetShown } from "../../api/schema";
import { number, t } from "../../i18n";
import { useAct } from "../../ui/act";
import { Button, Choice } from "../../ui/controls";
import { FormDialog, TextField } from "../../ui/forms";
import { Loaded, usePolled } from "../../ui/polled";

const NEW: Pick<BudgetShown, "tenant" | "month" | "soft" | "hard" | "webhook"> = { tenant: "", month: 100, soft: 0.8, hard: true, webhook: null };

export function Budgets() {
  const polled = usePolled(async () => (await call("GET /v1/budgets", {})).data, 10_000);
  const setting = useSignal<typeof NEW | null>(null);
  const { act } = useAct();
  const remove = (tenant: string) =>
    act(async () => {
      await call("DELETE /v1/budgets/{tenant}", { path: { tenant } });
      polled.again();
    });
  return (
    <section aria-labelledby="budgets-title">
      <div class="row row-spread">
        <h2 id="budgets-title">{t("budgets.title")}</h2>
        <Button icon="plus" onClick={() => (setting.value = NEW)}>
          {t("budgets.set")}
        </Button>
      </div>
      <Loaded polled={polled}>
        {(budgets) =>
          budgets.length === 0 ? (
            <p class="quiet">{t("budgets.none")}</p>
          ) : (
            <ul class="rows">
              {budgets.map((budget) => (
                <li key={budget.tenant} class="entry">
                  <div class="entry-main">
                    <h3>{budget.tenant === "*" ? t("budgets.everyone") : budget.tenant}</h3>
                    {budget.spent != null && budget.tenant !== "*" && (
                      <meter min={0} max={budget.month} high={budget.soft * budget.month} value={Math.min(budget.spent, budget.month)} aria-label={t("budgets.spent_of", { tenant: budget.tenant })} />
                    )}
                    <p class="facts">
                      <span>{budget.spent == null ? t("budgets.month", { amount: money(budget.month, budget.currency) }) : t("budgets.spent", { spent: money(budget.spent, budget.currency), amount: money(budget.month, budget.currency) })}</span>
                      <span>{t(budget.hard ? "budgets.hard" : "budgets.soft")}</span>
                      {budget.source === "config" && <span>turnout.yaml</span>}
                    </p>
                  </div>
                  <div class="entry-actions">
                    <Button icon="edit" aria-label={t("budgets.change_of", { tenant: budget.tenant })} onClick={() => (setting.value = budget)}>
                      {t("budgets.change")}
                    </Button>
                    {budget.source === "admin" && (
                      <Button kind="danger" icon="trash" aria-label={t("budgets.remove_of", { tenant: budget.tenant })} onClick={() => void remove(budget.tenant)}>
                        {t("budgets.remove")}
                      </Button>
                    )}
                  </div>
                </li>
              ))}
            </ul>
          )
        }
      </Loaded>
      {setting.value !== null && <BudgetDialog budget={setting.value} onClose={() => (setting.value = null)} onDone={polled.again} />}
    </section>
  );
}

export function money(amount: number, currency: string): string {
  if (amount > 0 && amount < 0.005) return `< ${number(0.01, 2)} ${currency}`;
  return `${number(amount, amount < 10 ? 2 : 0)} ${currency}`;
}

function BudgetDialog({ budget, onClose, onDone }: { budget: typeof NEW; onClose: () => void; onDone: () => void }) {
  const tenant = useSignal(budget.tenant);
  const month = useSignal(String(budget.month));
  const hard = useSignal(budget.hard);
  const save = async () => {
    await call("PUT /v1/budgets/{tenant}", { path: { tenant: tenant.value.trim() }, body: { month: Number(month.value), soft: budget.soft, hard: hard.value, webhook: budget.webhook } });
    onDone();
    onClose();
  };
  return (
    <FormDialog title={t("budgets.set")} send={save} submit={t("save")} onClose={onClose}>
      <TextField label={t("operate.tenant")} hint={t("budgets.tenant_hint")} value={tenant} required readOnly={budget.tenant !== ""} maxLength={64} />
      <TextField label={t("budgets.amount")} value={month} required type="number" min="0.01" step="any" />
      <Choice label={t("budgets.when")} value={hard.value ? "hard" : "soft"} onChange={(value) => (hard.value = value === "hard")} options={[{ value: "hard", text: t("budgets.hard") }, { value: "soft", text: t("budgets.soft") }]} />
    </FormDialog>
  );
}
