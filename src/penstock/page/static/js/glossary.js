// What the words of the page mean: the sentences of docs/glossary.md, which a test compares.

export const TERMS = {
  allowance: "How many windows a view with a deadline may still lose: k' of the next m'",
  backlog: "Data in the source that no batch has yet",
  batch: "The tuples that one Spark job of a stream processes together",
  corrected: "An answer that replaces an earlier one, after late tuples",
  coverage: "Estimated share of a window's tuples that an answer contains; NULL: no promise",
  cut: "One step of a lane: all new entries that it answers together",
  early: "The first answer of a window, before all its tuples can have arrived",
  "evaluation sequence": "Order in which compared columns are checked",
  final: "An answer that no tuple is expected to change",
  horizon: "How long after its end a window becomes final",
  lane: "The worker behind a stream that answers windows, one join, or deadlines",
  promise: "That at most delta of the early answers are off by epsilon or more",
  quarantine: "Folder of malformed records, with reasons",
  rho: "Factor by which Penstock multiplies the predicted costs of windows with a deadline",
  sink: "Where rows of a view are delivered after publication, by a thread of its own",
  slack: "How long after its end a window waits for late tuples before its early answer",
  tuple: "A row of a stream",
};
