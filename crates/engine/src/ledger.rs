//! The counted arithmetic of a run, beside what an engine without our economies would spend on it.

use crate::Engine;
use crate::layout::Layout;
use crate::program::{Attend, Op, Part, Positions, Program, RowSet, Segment};
use crate::run::Machine;
use sparing_kernels::Activation;
use sparing_kernels::attention::By;
use sparing_model::{GlobalTokens, NormKind, Wanted};

/// Operations counted for one element of a layer norm.
const NORM_FLOPS: u64 = 8;
/// Operations counted for one score in a softmax.
const SOFTMAX_FLOPS: u64 = 5;
/// Operations counted for one element of a smooth activation.
const ACTIVATION_FLOPS: u64 = 10;

/// The counted cost of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Ledger {
    /// By part; only parts that the model has.
    pub parts: Vec<LedgerPart>,
    /// Tokens in the batch.
    pub tokens: usize,
    /// Tokens of the batch padded to its longest sequence.
    pub padded_tokens: usize,
}

/// One part of a [`Ledger`].
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerPart {
    /// The part.
    pub name: &'static str,
    /// Floating-point operations as run (a multiplication and an addition are two).
    pub flops: u64,
    /// The same for an engine that pads and computes every row of every layer.
    pub flops_exact_padded: u64,
}

impl Ledger {
    /// All operations as run.
    pub fn flops(&self) -> u64 {
        self.parts.iter().map(|part| part.flops).sum()
    }

    /// All operations of an engine that pads and computes every row of every layer.
    pub fn flops_exact_padded(&self) -> u64 {
        self.parts.iter().map(|part| part.flops_exact_padded).sum()
    }
}

impl Engine {
    /// Counts the arithmetic of a batch of sequences of these lengths.
    ///
    /// Sequences are taken to differ (identical ones would be computed once). Where global tokens depend on the
    /// text, one per sequence is counted.
    pub fn ledger(&self, lengths: &[usize], wanted: &Wanted) -> Ledger {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let padded = vec![longest; lengths.len()];
        let exact = match wanted {
            Wanted::Hidden => &self.programs.hidden,
            Wanted::Head => &self.programs.head_exact,
            Wanted::Rows(_) => self.programs.rows_exact.as_ref().unwrap_or(&self.programs.head_exact),
        };
        // What is chosen by the text is counted while it runs; how many keys are is known.
        let known = self.attention().mca.is_none() && self.attention().tokens.is_none();
        let program = self.planned(wanted).filter(|_| known).unwrap_or_else(|| self.program(wanted));
        let run = self.count(program, lengths, wanted);
        let exact = self.count(exact, &padded, wanted);
        let parts = Part::EVERY
            .iter()
            .map(|part| LedgerPart {
                name: part.name(),
                flops: run[*part as usize],
                flops_exact_padded: exact[*part as usize],
            })
            .filter(|part| part.flops > 0 || part.flops_exact_padded > 0)
            .collect();
        Ledger { parts, tokens: lengths.iter().sum(), padded_tokens: longest * lengths.len() }
    }

    /// Operations of the exact program on real tokens: all of them, and of mixing values by attention.
    pub(crate) fn exact_flops(&self, lengths: &[usize], wanted: &Wanted) -> (u64, u64) {
        let parts = self.count(self.program(wanted), lengths, wanted);
        (parts.iter().sum(), parts[Part::Values as usize])
    }

    /// Operations of each layer on real tokens, exactly: matrix products and attention, without norms and activations.
    pub fn layer_flops(&self, lengths: &[usize], wanted: &Wanted) -> Vec<u64> {
        let mut flops = vec![0; self.architecture.layers.len()];
        self.each(self.program(wanted), lengths, wanted, &mut |layer, part, count| {
            if let Some(layer) = layer.filter(|_| part != Part::Norms) {
                flops[layer] += count;
            }
        });
        flops
    }

    /// Operations of each layer's attention, and of its feed-forward blocks, on real tokens, exactly.
    pub fn block_flops(&self, lengths: &[usize], wanted: &Wanted) -> Vec<[u64; 2]> {
        let mut flops = vec![[0; 2]; self.architecture.layers.len()];
        self.each(self.program(wanted), lengths, wanted, &mut |layer, part, count| match (layer, part) {
            (None, _) | (_, Part::Embeddings | Part::Bottleneck | Part::Norms | Part::Head) => {}
            (Some(layer), Part::FfnUp | Part::FfnDown) => flops[layer][1] += count,
            (Some(layer), _) => flops[layer][0] += count,
        });
        flops
    }

    fn count(&self, program: &Program, lengths: &[usize], wanted: &Wanted) -> [u64; Part::EVERY.len()] {
        let mut flops = [0u64; Part::EVERY.len()];
        self.each(program, lengths, wanted, &mut |_, part, count| flops[part as usize] += count);
        flops
    }

    /// Tells of all operations of a program.
    fn each(&self, program: &Program, lengths: &[usize], wanted: &Wanted, add: &mut Add<'_>) {
        let selected = |number: usize| match wanted {
            Wanted::Rows(rows) => rows.get(number).map_or(0, Vec::len),
            Wanted::Head | Wanted::Hidden => 1,
        };
        let globals = if self.architecture.head.global_tokens == GlobalTokens::None { 0 } else { 1 };
        let queries = |rows: RowSet, number: usize| match rows {
            RowSet::All | RowSet::Busy => lengths[number],
            RowSet::Selected => selected(number),
            RowSet::Globals => globals,
            RowSet::SelectedGlobals => globals.min(selected(number)),
            RowSet::Sequences => 1,
        };
        let rows = |set: RowSet| -> u64 { (0..lengths.len()).map(|i| queries(set, i) as u64).sum() };
        let looks = |set: RowSet| -> Vec<Look> {
            let look = |i: usize| Look { queries: queries(set, i), keys: lengths[i], globals };
            (0..lengths.len()).map(look).collect()
        };
        for segment in &program.segments {
            self.machine.count(segment, &rows, &looks, add);
        }
    }
}

/// Hears of operations: layer, part, how many.
type Add<'a> = dyn FnMut(Option<usize>, Part, u64) + 'a;

impl Machine {
    /// Operations of a segment on the rows that a layout holds, with exact values; for networks without windows.
    pub(crate) fn flops_on(&self, segment: &Segment, layout: &Layout) -> u64 {
        let looks = |set: RowSet| -> Vec<Look> {
            let spans = &layout.spans(set).spans;
            spans.iter().map(|s| Look { queries: s.queries.len(), keys: s.keys.len(), globals: 0 }).collect()
        };
        let rows = |set: RowSet| layout.count(set) as u64;
        let mut flops = 0;
        self.count(segment, &rows, &looks, &mut |_, _, count| flops += count);
        if let Segment::Values(values) = segment {
            let rule = &self.constants.economies[values.economy].rule;
            flops += 2 * rows(RowSet::All) * (rule.inputs * rule.heads * rule.width) as u64;
        }
        flops
    }

    /// Tells of a segment's operations: `rows` in a set, `looks` of a set's queries at keys.
    fn count(
        &self,
        segment: &Segment,
        rows: &dyn Fn(RowSet) -> u64,
        looks: &dyn Fn(RowSet) -> Vec<Look>,
        add: &mut Add<'_>,
    ) {
        let scores =
            |attend: &Attend| -> u64 { looks(attend.queries).into_iter().map(|look| pairs(attend, look)).sum() };
        match segment {
            Segment::RowLocal(local) => {
                let count = rows(local.rows);
                for step in &local.steps {
                    if step.only_if.is_some_and(|set| rows(set) == 0) {
                        continue;
                    }
                    let width = step.op.output().width() as u64;
                    match &step.op {
                        Op::Words { .. } | Op::Copy { .. } => {}
                        Op::AddPlaces { .. } => add(step.layer, step.part, 2 * width * count),
                        Op::Shift { .. } => add(step.layer, step.part, width * count),
                        Op::Linear { input, activation, .. } => {
                            add(step.layer, step.part, 2 * width * input.width() as u64 * count);
                            let each = match activation {
                                Activation::Identity => 0,
                                Activation::Relu | Activation::Clip => 1,
                                _ => ACTIVATION_FLOPS,
                            };
                            add(step.layer, Part::Norms, each * width * count);
                        }
                        Op::Norm { norm, .. } => {
                            let layer = self.constants.norms[*norm].kind == NormKind::Layer;
                            add(step.layer, step.part, if layer { NORM_FLOPS } else { 2 } * width * count);
                        }
                    }
                }
            }
            Segment::Attend(attend) => {
                let scores = scores(attend);
                let width = (attend.heads * attend.head_width) as u64;
                let positions = match attend.positions {
                    Positions::None => 0,
                    Positions::Buckets(_) => attend.heads as u64 * scores,
                    Positions::Relative(_) => 2 * width * scores,
                };
                let layer = Some(attend.layer);
                if let Some(network) = attend.network {
                    let network = &self.constants.networks[network];
                    let (slots, heads) = (network.slots() as u64, attend.heads as u64);
                    let products = |look: &Look| network.products(look.queries, look.keys, attend.head_width) as u64;
                    let each = 2 * heads * looks(attend.queries).iter().map(products).sum::<u64>();
                    add(layer, Part::Scores, each);
                    add(layer, Part::Values, each);
                    add(layer, Part::Norms, 2 * heads * slots * rows(attend.queries));
                    return;
                }
                add(layer, Part::Scores, 2 * width * scores);
                add(layer, Part::Values, 2 * width * scores);
                add(layer, Part::Norms, SOFTMAX_FLOPS * attend.heads as u64 * scores);
                add(layer, Part::Positions, positions);
                if attend.keys.is_some() {
                    // Choosing looks at every number of the queries and keys once.
                    add(layer, Part::Importance, width * (rows(attend.queries) + rows(RowSet::All)));
                }
            }
            Segment::Pool { from, .. } => add(None, Part::Head, rows(RowSet::All) * from.width() as u64),
            // Budgets depend on the input: counted while it runs, see `Spending`.
            Segment::Values(_) => {}
            Segment::Select(select) if select.tokens.merge > 0.0 => {
                // Keys' means over heads, then each of one half with each of the other.
                let Attend { layer, heads, head_width, .. } = select.attend;
                let means = rows(RowSet::All) * (heads * head_width) as u64;
                add(Some(layer), Part::Importance, means + scores(&select.attend) * head_width as u64 / 2);
            }
            // No arithmetic of its own: scores are computed once, here or in the attention that comes next.
            Segment::Select(_) | Segment::Drop(_) | Segment::Gather { .. } | Segment::Scatter { .. } => {}
        }
    }
}

/// How many queries of a sequence look at how many keys, and how many of those every query sees.
#[derive(Clone, Copy)]
struct Look {
    queries: usize,
    keys: usize,
    globals: usize,
}

/// Query-key pairs of a sequence that attention looks at. Chosen keys are taken to be spread evenly, groups to be full.
fn pairs(attend: &Attend, look: Look) -> u64 {
    let Look { queries, keys, globals } = look;
    if let Some(chosen) = attend.keys.filter(|chosen| chosen.keep.of(keys) < keys) {
        let groups = if chosen.by == By::Grouped { 2 } else { 1 };
        let kept = (groups * chosen.keep.of(keys)).min(keys) as u64;
        return pairs(&Attend { keys: None, ..attend.clone() }, look) * kept / keys as u64;
    }
    let at = |position: usize| {
        let (low, high) = match attend.window {
            Some(window) => (position.saturating_sub(window), (position + window + 1).min(keys)),
            None => (0, keys),
        };
        let high = if attend.causal { high.min(position + 1) } else { high };
        // Global keys outside the window; they are the first ones.
        let outside = if attend.window.is_some() { low.min(globals) } else { 0 };
        (high - low + outside) as u64
    };
    if queries == keys {
        (0..keys).map(at).sum()
    } else if attend.causal {
        // Which queries is unknown; the last ones see the most.
        (keys.saturating_sub(queries)..keys).map(at).sum()
    } else {
        (0..queries).map(|query| at(query.min(keys.saturating_sub(1)))).sum()
    }
}
