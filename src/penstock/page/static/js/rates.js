// Rates from totals.

/** Rates between neighbouring points of a total; one shorter than `at`. */
export const pace = (at, totals) =>
  at.slice(1).map((time, index) => {
    const [before, after] = [totals[index], totals[index + 1]];
    const passed = time - at[index];
    return before === null || after === null || passed <= 0 ? null : Math.max(0, after - before) / passed;
  });
