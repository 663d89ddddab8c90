"use strict";
(() => {
  // Exact fractions of BigInts: [numerator, denominator > 0], in lowest terms.
  const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return a < 0n ? -a : a; };
  const q = (n, d = 1n) => {
    if (d < 0n) [n, d] = [-n, -d];
    const g = gcd(n, d) || 1n;
    return [n / g, d / g];
  };
  const plus = (a, b) => q(a[0] * b[1] + b[0] * a[1], a[1] * b[1]);
  const times = (a, b) => q(a[0] * b[0], a[1] * b[1]);
  const less = (a, b) => a[0] * b[1] < b[0] * a[1];
  const add = (...xs) => xs.reduce(plus);
  const mul = (...xs) => xs.reduce(times);
  const max = (...xs) => xs.reduce((a, b) => (less(a, b) ? b : a));
  const min = (...xs) => xs.reduce((a, b) => (less(b, a) ? b : a));
  const floor = ([n, d]) => q(n >= 0n ? n / d : -((-n + d - 1n) / d));
  const ceil = ([n, d]) => { const [m] = floor([-n, d]); return q(-m); };
  const pow = ([n, d], k) => (k < 0 ? q(d ** BigInt(-k), n ** BigInt(-k)) : q(n ** BigInt(k), d ** BigInt(k)));

  const FORMULAS = {/*FORMULAS*/};

  const setup = JSON.parse(document.getElementById("setup").textContent);
  const form = document.getElementById("controls");
  if (!form) return;
  const one = (id) => document.getElementById(id);
  const values = new Map(Object.entries(setup.values).map(([k, x]) => [k, BigInt(x)]));
  const uneven = one("uneven");
  const chosen = () => form.elements.variant?.value ?? "own";

  const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
  const human = ([n, d]) => {
    let x = Number(n) / Number(d), unit = 0;
    while (Math.abs(x) >= 999.95 && unit < units.length - 1) { x /= 1000; unit += 1; }
    return `${Number(x.toPrecision(4))} ${units[unit]}`;
  };
  const grouped = (n) => n.toString().replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const exact = ([n, d]) => {
    if (d === 1n) return `${grouped(n)} bytes`;
    const hundredths = (200n * n + d) / (2n * d), cents = (hundredths % 100n).toString().padStart(2, "0");
    return `${grouped(hundredths / 100n)}.${cents} bytes`;
  };

  const lookup = (variant) => {
    const derived = setup.derived[variant];
    return (name) => {
      if (Object.hasOwn(derived, name)) {
        const [base, factor] = derived[name];
        return q(values.get(base) * BigInt(factor));
      }
      return q(values.get(name));
    };
  };

  const compute = () => {
    const variant = chosen(), v = lookup(variant), way = uneven.checked ? "uneven" : "even";
    const said = [];
    for (const box of document.querySelectorAll(".variant")) box.hidden = box.dataset.variant !== variant;
    for (const row of document.querySelectorAll(".knob"))
      row.hidden = !row.dataset.of.split(" ").includes(variant);
    const most = {};
    const outputs = [...document.querySelectorAll(`[data-form^="${variant}:"]`)];
    const found = outputs.map((out) => {
      const value = FORMULAS[out.dataset.form.replace(":", `:${way}:`)]?.(v);
      if (value) most[out.dataset.kind] = max(most[out.dataset.kind] ?? q(0n), value);
      return value;
    });
    outputs.forEach((out, i) => {
      const value = found[i], row = out.closest("tr");
      out.textContent = value ? human(value) : "not one of these formulas";
      out.dataset.exact = value ? value.join("/") : "";
      out.nextElementSibling.textContent = value ? exact(value) : "";
      const top = most[out.dataset.kind] ?? q(1n);
      const share = value && top[0] ? Number((10000n * value[0] * top[1]) / (value[1] * top[0])) / 100 : 0;
      row.querySelector(".bar > div").style.width = `${share}%`;
      if (row.classList.contains("total")) said.push(`${row.cells[0].textContent} ${out.textContent}`);
    });
    return said;
  };

  let timer;
  const update = () => {
    const said = compute();
    clearTimeout(timer);
    timer = setTimeout(() => { one("status").textContent = said.join(", "); }, 600);
  };

  const nearest = (stops, value) => {
    let best = 0;
    stops.forEach((s, i) => {
      if (Math.abs(Math.log(s) - Math.log(value)) < Math.abs(Math.log(stops[best]) - Math.log(value))) best = i;
    });
    return best;
  };

  // A whole number, also as 7.5e9; null for anything else.
  const whole = (text) => {
    const found = /^([0-9]+)(?:\.([0-9]+))?(?:e\+?([0-9]{1,2}))?$/i.exec(text.trim());
    if (!found) return null;
    const [, head, tail = "", power = "0"] = found;
    const [n, d] = q(BigInt(head + tail) * 10n ** BigInt(power), 10n ** BigInt(tail.length));
    return d === 1n ? n : null;
  };

  const typed = (input) => {
    const name = input.dataset.symbol, error = one(`e-${name}`), value = whole(input.value);
    const good = value !== null && value >= BigInt(input.min) && value <= BigInt(setup.most);
    input.setAttribute("aria-invalid", String(!good));
    error.textContent = good ? "" : `a whole number from ${input.min} to 1e15`;
    if (!good) return;
    values.set(name, value);
    const slider = one(`r-${name}`);
    slider.value = nearest(setup.stops[name].map(Number), Number(value));
    slider.setAttribute("aria-valuetext", grouped(value));
    update();
  };

  const slid = (input) => {
    const name = input.dataset.symbol;
    one(`n-${name}`).value = setup.stops[name][Number(input.value)];
    typed(one(`n-${name}`));
  };

  form.addEventListener("input", ({ target }) => {
    if (target.type === "range") slid(target);
    else if (target.type === "number") typed(target);
    else update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => {
    for (const input of form.querySelectorAll("input[type=number]")) typed(input);
    update();
  }));

  const opened = [];
  addEventListener("beforeprint", () => {
    for (const box of document.querySelectorAll("details:not([open])")) { box.open = true; opened.push(box); }
  });
  addEventListener("afterprint", () => { for (const box of opened.splice(0)) box.open = false; });

  document.body.classList.add("live");
  compute();
})();
