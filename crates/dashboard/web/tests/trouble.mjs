// Tests of what the page says in trouble: refused tokens, answers that are none, figures that stand still.

import assert from "node:assert/strict";
import { until } from "./daemon.mjs";

/** Tests by name; `it` has the helpers of `run.mjs`, and the daemon once it runs. */
export const trouble = (it) => ({
  async "a token that is revoked is forgotten, which the page says, and reading goes on"() {
    const { page, errors, close } = await it.open("vm/db");
    await it.ready(page, "vm/db");
    await it.enterToken(page, await it.daemon.token("short", "operate"));
    await page.getByRole("button", { name: "Token ✓" }).waitFor();
    const { status } = await it.daemon.ask("DELETE", "/v1/tokens/short");
    assert.ok(status < 300, `revoked: ${status}`);
    await page.getByRole("alert").filter({ hasText: "refused the token" }).waitFor();
    await page.getByRole("button", { name: "Token", exact: true }).waitFor();
    // Requests are answered again, and other pages can be reached.
    const [answer] = await Promise.all([
      page.waitForResponse((it) => it.url().endsWith("/v1/vms/db") && it.request().method() === "GET" && it.ok()),
      page.getByRole("button", { name: "Close" }).click(),
    ]);
    assert.equal(answer.status(), 200);
    await page.getByRole("link", { name: "Transfers" }).click();
    await page.getByRole("heading", { name: "Deadline transfers" }).waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
    assert.deepEqual(it.unexpected(errors), []);
    await close();
  },

  async "an answer of /healthz that is an error is told, and the page goes on"() {
    for (const status of [401, 403, 500, 503]) {
      const json = { error: { what: `no health today, ${status}`, where: "requests", allowed: null } };
      const prepare = (page) => page.route("**/healthz", (route) => route.fulfill({ status, json }));
      const { page, errors, close } = await it.open("", { prepare });
      await page.getByRole("alert").filter({ hasText: json.error.what }).waitFor();
      await it.ready(page, "");
      await page.getByRole("button", { name: "Pause" }).click();
      await page.getByRole("button", { name: "Go on" }).waitFor();
      assert.deepEqual(errors.filter((text) => !text.includes(`status of ${status}`)), []);
      await close();
    }
    const degraded = { status: "failing", problems: ["a disk hangs"] };
    const prepare = (page) => page.route("**/healthz", (route) => route.fulfill({ status: 503, json: degraded }));
    const { page, close } = await it.open("", { prepare });
    await page.getByRole("alert").filter({ hasText: "failing" }).filter({ hasText: "a disk hangs" }).waitFor();
    await close();
  },

  async "a page that cannot be drawn says so, and the others go on"() {
    const prepare = (page) => page.route("**/v1/vms/db", (route) => route.fulfill({ json: {} }));
    const { page, close } = await it.open("vm/db", { prepare });
    await page.getByRole("alert").filter({ hasText: "cannot be drawn" }).waitFor();
    await page.getByRole("link", { name: "Overview" }).click();
    await it.ready(page, "");
    assert.equal(await page.getByRole("alert").count(), 0);
    await close();
  },
});
