// Plain HTTP and metrics for the worker's tests.

/** POSTs JSON, or a string as it is. */
export function post(url: string, path: string, body: unknown, signal?: AbortSignal): Promise<Response> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return fetch(url + path, { method: "POST", body: text, ...(signal && { signal }) });
}

/** A chat request of one user message. */
export function chat(content: string, more: object = {}): object {
  return { model: "sim", messages: [{ role: "user", content }], ...more };
}

/** The samples of `/metrics`: name with labels, without model_name, to value. */
export async function scrape(url: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const samples = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return Object.fromEntries(
    samples.map((line) => {
      const at = line.lastIndexOf(" ");
      const name = line.slice(0, at).replace(/model_name="[^"]*",?/, "");
      return [name.replace("{}", ""), Number(line.slice(at + 1))];
    }),
  );
}

/** Scrapes until the metrics hold what is expected; the test's own timeout ends a vain wait. */
export async function metricsReach(url: string, expected: Record<string, number>): Promise<void> {
  for (;;) {
    const found = await scrape(url);
    if (Object.entries(expected).every(([name, value]) => found[name] === value)) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
