"use strict";
// Draws the report. Texts of the archive become text nodes only: a topic's name is never read as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const CAUSES = [
    ["a", "archived", "archived"], ["m", "missing", "missing from the archive"], ["u", "unreadable", "unreadable in Kafka"],
    ["d", "undecided", "transaction without an outcome"], ["e", "expired", "expired in Kafka first"], ["x", "erased", "erased on request"],
    ["b", "before-start", "before the configured start"], ["s", "swept", "deleted by retention"],
  ];
  const RANK = "sbexdum"; // a later one is drawn over an earlier one
  const LOSSES = ["missing", "unreadable", "undecided", "expired"];
  const PAGE = 100;
  const POWERS = Array.from({ length: 60 }, (_, at) => 2 ** at);

  const by = (id) => document.getElementById(id);
  function el(name, props, ...children) {
    const node = Object.assign(document.createElement(name), props);
    node.append(...children.filter((one) => one !== null && one !== ""));
    return node;
  }
  const count = (n) => Math.round(n).toLocaleString("en");
  const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
  function short(n, base, units) {
    let at = 0;
    for (; n >= base && at < units.length - 1; at++) n /= base;
    return `${n.toLocaleString("en", { maximumFractionDigits: n < 10 && at ? 1 : 0 })}${units[at] && base === 1024 ? " " : ""}${units[at]}`;
  }
  const size = (n) => short(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  const brief = (n) => (n > 0 && n < 10 ? String(+n.toPrecision(2)) : short(n, 1000, ["", "k", "M", "G", "T"]));
  const time = (ms) => (ms ? new Date(ms).toISOString().slice(0, 16).replace("T", " ") : "never");
  const stamp = (text) => (text || "").slice(0, 16).replace("T", " ");
  const day = (ms) => new Date(ms).toISOString().slice(0, 10);
  const money = (n) => `${n.toLocaleString("en", { minimumFractionDigits: n < 1000 ? 2 : 0, maximumFractionDigits: n < 1000 ? 2 : 0 })} ${data.cost.currency}`;
  function age(ms) {
    for (const [unit, length] of [["d", 864e5], ["h", 36e5], ["min", 6e4]]) if (ms >= length) return `${Math.floor(ms / length)} ${unit}`;
    return `${Math.max(0, Math.floor(ms / 1000))} s`;
  }
  const sum = (rows, name) => rows.reduce((all, row) => all + (row[name] || 0), 0);
  function table(section, heads, rows) {
    const cell = (kind, text, at) => el(kind, { className: heads[at].startsWith("#") ? "n" : "" }, typeof text === "string" ? text : text ?? "");
    by(section).hidden = !rows.length;
    by(section).querySelector("table").append(
      el("thead", {}, el("tr", {}, ...heads.map((one, at) => cell("th", one.replace("#", ""), at)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((one, at) => cell("td", one, at))))),
    );
  }

  const topics = data.topics.map((topic) => {
    const lost = {};
    for (const part of topic.partitions) for (const [cause, n] of Object.entries(part.lost || {})) lost[cause] = (lost[cause] || 0) + n;
    const sums = Object.fromEntries(["records", "payload_bytes", "stored_bytes", "segments", "damaged", "uncounted"].map((one) => [one, sum(topic.partitions, one)]));
    const put = topic.partitions.reduce((last, one) => Math.max(last, one.last_put || 0), 0);
    const bad = LOSSES.reduce((all, cause) => all + (lost[cause] || 0), 0) + sums.damaged;
    return { ...topic, ...sums, lost, put, bad, label: topic.topic + (topic.life ? ` (life ${topic.life})` : "") };
  });
  const parts = topics.flatMap((one) => one.partitions);
  const lost = {};
  for (const topic of topics) for (const [cause, n] of Object.entries(topic.lost)) lost[cause] = (lost[cause] || 0) + n;
  const lostText = (some, names) => names.filter((name) => some[name]).map((name) => `${count(some[name])} ${name}`).join(", ");
  const NAMES = CAUSES.slice(1).map(([, name]) => name);
  const BINS = data.puts.stored.length;
  const SVG = "http://www.w3.org/2000/svg";
  function svg(className, width, height, label) {
    const node = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ class: className, viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label })) node.setAttribute(name, value);
    return node;
  }
  function rect(node, x, width, height, top, className, opacity) {
    const one = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ x, width, height, y: top, class: className, opacity })) one.setAttribute(name, value);
    node.append(one);
  }
  function drawLine(lines) {
    // Of several partitions: opacity is the share that has records of that time; the worst loss of any lies over it.
    const have = new Array(BINS).fill(0), worst = new Array(BINS).fill(-1);
    for (const line of lines) [...line].forEach((code, bin) => {
      if (code === "a") have[bin]++;
      else worst[bin] = Math.max(worst[bin], RANK.indexOf(code));
    });
    const node = svg("line", BINS, 10, "what is archived over time");
    const look = (bin) => `${have[bin] ? Math.max(2, Math.ceil((10 * have[bin]) / lines.length)) : 0} ${worst[bin]}`;
    for (let begin = 0, end; begin < BINS; begin = end) {
      for (end = begin + 1; end < BINS && look(end) === look(begin); ) end++;
      const [share, loss] = look(begin).split(" ").map(Number);
      if (share) rect(node, begin, end - begin, 10, 0, "a", share / 10);
      if (loss >= 0) rect(node, begin, end - begin, share ? 5 : 10, share ? 5 : 0, RANK[loss], 1);
    }
    return node;
  }
  function drawRate(digits) {
    const node = svg("rate", BINS, 9, "bytes put over time");
    [...digits].forEach((digit, at) => Number(digit) && rect(node, at, 0.8, digit, 9 - digit, "a", 1));
    return node;
  }

  function drawPart(part) {
    const lostHere = lostText(part.lost || {}, NAMES);
    const name = el("div", {}, `partition ${part.partition}`, part.copy ? el("small", {}, `read from ${part.copy}`) : "", el("small", {}, `offsets ${count(part.first_offset || 0)} to ${count((part.next_offset || 1) - 1)}`));
    const facts = el("div", {}, `${brief(part.records || 0)} records, ${size(part.stored_bytes || 0)}`, el("small", {}, `${plural(part.segments || 0, "object")}, put until ${time(part.last_put)}`));
    if (lostHere || part.damaged) {
      facts.append(el("small", { className: "bad" }, [lostHere.replace(/^\d/, "offsets: $&"), part.damaged ? plural(part.damaged, "damaged object") : ""].filter(Boolean).join(", ")));
      facts.append(el("small", {}, part.ranges || ""));
    }
    return el("div", { className: "part" }, name, drawLine([part.line]), facts);
  }
  function drawParts(holder, some, from) {
    holder.append(...some.slice(from, from + PAGE).map(drawPart));
    const left = some.length - from - PAGE;
    if (left > 0) {
      const button = el("button", { type: "button", onclick: () => { row.remove(); drawParts(holder, some, from + PAGE); } }, `show ${Math.min(PAGE, left)} more`);
      const row = el("div", { className: "part" }, el("div", {}, `${plural(left, "more partition")} `, button));
      holder.append(row);
    }
  }
  function drawTopic(topic) {
    const remarks = [lostText(topic.lost, NAMES).replace(/^\d/, "offsets: $&"), topic.damaged ? plural(topic.damaged, "damaged object") : "", topic.uncounted ? `${plural(topic.uncounted, "object")} of v1.0 uncounted` : ""].filter(Boolean).join(", ");
    const name = el("div", {}, el("b", {}, topic.label), el("small", {}, topic.segments ? `${plural(topic.partitions.length, "partition")}, ${brief(topic.records)} records, ${size(topic.stored_bytes)}` : "no records"), remarks ? el("small", { className: topic.bad ? "bad" : "" }, remarks) : "");
    const rate = topic.rate ? el("div", {}, drawRate(topic.rate), el("small", {}, `last put ${time(topic.put)}`)) : "";
    const node = el("details", {}, el("summary", {}, name, topic.rate ? drawLine(topic.partitions.map((one) => one.line)) : "", rate));
    const ordered = [...topic.partitions].sort((one, other) => bad(other) - bad(one) || one.partition - other.partition);
    node.addEventListener("toggle", () => node.open && node.childElementCount === 1 && drawParts(node, ordered, 0));
    return node;
  }
  const bad = (part) => Number(Boolean(part.damaged) || LOSSES.some((cause) => (part.lost || {})[cause]));
  topics.sort((one, other) => Math.sign(other.bad) - Math.sign(one.bad) || other.stored_bytes - one.stored_bytes);
  function drawTopics(limit) {
    const text = by("find").value.toLowerCase();
    const some = topics.filter((one) => one.topic.toLowerCase().includes(text));
    by("list").replaceChildren(...some.slice(0, limit).map(drawTopic));
    const left = some.length - limit;
    by("more").replaceChildren(...(left > 0 ? [`${plural(left, "more topic")} `, el("button", { type: "button", onclick: () => drawTopics(limit + PAGE) }, `show ${Math.min(PAGE, left)} more`)] : some.length ? [] : ["No topic."]));
    const first = by("list").querySelector("details");
    if (topics.length === 1 && first) first.open = true;
  }

  function drawCards() {
    const stored = sum(parts, "stored_bytes"), put = topics.reduce((last, one) => Math.max(last, one.put), 0);
    const lives = topics.filter((one) => one.life).length, incomplete = topics.filter((one) => one.bad).length;
    const status = data.status, next = (status.runs.find((one) => one.kind === "retention") || {}).next;
    const cards = [
      ["is it working?", status.working ? "yes" : "no", status.durable_through ? `archived until ${stamp(status.durable_through)}` : "", status.working ? "" : "bad"],
      ["topics", count(new Set(topics.map((one) => one.topic)).size), `${plural(parts.length, "partition")}${lives ? `, ${lives} created again` : ""}`],
      ["records", brief(sum(parts, "records")), `${size(sum(parts, "payload_bytes"))} before compression`],
      ["stored", size(stored), plural(sum(parts, "segments"), "object")],
      ["last put", put ? `${age(data.now_ms - put)} ago` : "never", time(put)],
      [incomplete ? "incomplete" : "complete", incomplete ? plural(incomplete, "topic") : "no loss", lostText(lost, LOSSES) || "no offset is missing", incomplete ? "bad" : ""],
      ["puts a day", brief(data.cost.puts_a_day), `in the last ${age(data.cost.measured_ms)}`],
      ["cost a month", money(data.cost.storage_a_month + data.cost.puts_a_month), `${money(data.cost.storage_a_month)} storage, ${money(data.cost.puts_a_month)} puts`],
    ];
    const far = data.groups[0];
    if (far) cards.push(["largest group lag", brief(far.lag || 0), far.group]);
    if (next) cards.push(["next sweep", next.slice(0, 10), `at ${next.slice(11, 16)}`]);
    by("cards").append(...cards.map(([name, value, more, look]) => el("div", { className: `card ${look || ""}` }, el("small", {}, name), el("b", {}, value), el("small", {}, more))));
  }

  function drawCharts() {
    const { from_ms: from, until_ms: until } = data.put_axis, bin = (until - from) / BINS;
    const total = (name) => data.puts[name];
    const xs = Array.from({ length: BINS }, (_, at) => (from + bin * at) / 1000);
    // Objects put before the axis begins are in the sum too.
    let all = sum(parts, "stored_bytes") - total("stored").reduce((a, b) => a + b, 0);
    const grown = total("stored").map((n) => (all += n));
    const scale = (name, ms) => total(name).map((n) => (n * ms) / bin);
    const charts = [
      ["Stored bytes", grown, size, "line"], ["Archived bytes a second", scale("bytes", 1000), size, "bars"],
      ["Archived records a second", scale("records", 1000), brief, "bars"], ["Puts a day", scale("objects", 864e5), brief, "bars"],
    ];
    const drawn = charts.map(([title, ys, spell, kind]) => {
      const box = el("div", { className: "chart" }, el("h3", {}, title));
      by("charts").append(box);
      // Colors that can be read on white and on black: a canvas does not change with the style sheet.
      const dates = (_, ticks, at, space, step) => ticks.map((s) => new Date(s * 1000).toISOString().slice(...(step < 86400 ? [11, 16] : step < 2.4e6 ? [5, 10] : [0, 7])));
      const axis = { stroke: "#7d8790", grid: { stroke: "#7d879040", width: 1 }, ticks: { show: false } };
      const series = { stroke: "#3f88dd", fill: kind === "bars" ? "#3f88dd" : "#3f88dd40", width: kind === "bars" ? 0 : 2, points: { show: false } };
      if (kind === "bars") series.paths = uPlot.paths.bars({ size: [0.8, 100], align: 1 });
      return [box, new uPlot({
        width: 300, height: 150, tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "UTC"), legend: { show: false }, cursor: { show: false },
        scales: { x: { range: [from / 1000, until / 1000] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } }, series: [{}, series],
        axes: [{ ...axis, size: 28, values: dates }, { ...axis, size: 66, ...(spell === size ? { incrs: POWERS } : {}), values: (_, ticks) => ticks.map(spell) }],
      }, [xs, ys], box)];
    });
    const fit = () => drawn.forEach(([box, chart]) => chart.setSize({ width: Math.max(120, box.clientWidth - 20), height: 150 }));
    fit();
    addEventListener("resize", fit);
  }

  function drawStatus(status) {
    table("runs", ["run", "last success", "state", "archived until", "#partitions", "next", "late"], status.runs.map((one) => [
      one.kind, stamp(one.last_success) || "never", one.outcome, stamp(one.durable_through), one.partitions === null ? "" : count(one.partitions), stamp(one.next), el("span", { className: "bad" }, one.late || "")]));
    const others = status.late.filter((line) => !status.runs.some((one) => one.late === line)); // of no row of the table
    if (others.length) by("runs").hidden = false;
    const notes = [["late", others], ["unfinished restores", status.unfinished_restores], ["Kafka no longer has", status.topics_gone], ["holds at the last sweep", status.holds || []]];
    by("runs").querySelector(".note").append(notes.filter(([, names]) => names.length).map(([what, names]) => `${what}: ${names.join(", ")}`).join("; "));
  }
  function drawRest() {
    document.title = `archive ${data.url}`;
    by("url").append(data.url);
    by("made").append(`As of ${time(data.now_ms)} UTC, by archiver ${data.version}. All times are UTC.`);
    by("problems").hidden = !data.problem_count;
    by("problems").querySelector("ul").append(...data.problems.map((one) => el("li", {}, one)));
    const left = data.problem_count - data.problems.length;
    if (left > 0) by("problems").append(el("p", { className: "soft" }, `and ${plural(left, "more problem")}: archiver ls prints all`));
    drawStatus(data.status);
    by("legend").append(...CAUSES.filter(([code, name]) => code === "a" || lost[name]).map(([code, , words]) => el("span", {}, el("i", { className: code }), words)));
    by("axis").children[0].append("by the records’ timestamps");
    by("axis").children[1].append(el("span", {}, day(data.record_axis.from_ms)), el("span", {}, day(data.record_axis.until_ms)));
    by("axis").children[2].append(`bytes put since ${day(data.put_axis.from_ms)}`);
    table("groups", ["group", "#lag", "#partitions", "last commit"], data.groups.map((one) => [
      one.group, one.lag === null ? "?" : count(one.lag), count(one.partitions), one.committed_ms ? time(one.committed_ms) : ""]));
    by("groups").querySelector(".note").append(`Lag: archived offsets behind the group’s archived position.${data.group_count > data.groups.length ? ` ${plural(data.group_count - data.groups.length, "more group")} with less lag.` : ""}`);
    by("basis").append(`Cost: ${data.cost.price_gb} ${data.cost.currency} a GB (2^30 bytes) and month, ${data.cost.price_puts} ${data.cost.currency} for 1,000 puts; of archived segments that are there now, without notes, index, reads and transfer. Charts and puts a day count objects by the time of their put; what retention has deleted is not in them.`);
  }

  drawRest();
  drawCards();
  drawCharts();
  by("find").addEventListener("input", () => drawTopics(PAGE));
  drawTopics(PAGE);
  document.documentElement.dataset.drawn = "yes";
})();
