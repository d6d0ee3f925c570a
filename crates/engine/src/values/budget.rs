//! From budgets to work.

use super::draw::Draws;
use super::{Economy, Spending, Ways};
use crate::program::Attend;
use sparing_kernels::attention::Kept;
use sparing_kernels::staircase::{Part, Pick, Way, sort};
use sparing_kernels::{Buffer, Element};
use std::sync::Mutex;

/// Working memory of a run.
pub(crate) struct Space {
    /// Pooled attention `[heads, tokens]`.
    pub(crate) importance: Buffer,
    /// Probabilities from which the importance came, for the attention that follows.
    pub(crate) kept: Kept,
    pub(crate) kept_for: Option<Attend>,
    /// Per head, what is computed how.
    pub(crate) heads: Vec<Mutex<HeadPicks>>,
    /// Per sequence: all of it exactly.
    pub(crate) dense: Vec<bool>,
    /// Per sequence: queries that were pooled.
    pub(crate) queries: Vec<usize>,
    pub(crate) seed: u64,
    pub(crate) spent: Spending,
    /// Operations so far, on the tokens that are there, with exact values; only counted by programs that select.
    pub(crate) done: u64,
    /// Keys that are kept before all others, by row; empty: none are.
    pub(crate) pinned: Vec<bool>,
}

impl Default for Space {
    fn default() -> Self {
        Space {
            importance: Buffer::new(Element::F32),
            kept: Kept::default(),
            kept_for: None,
            heads: Vec::new(),
            dense: Vec::new(),
            queries: Vec::new(),
            seed: 0,
            spent: Spending::default(),
            done: 0,
            pinned: Vec::new(),
        }
    }
}

/// The tokens of one head.
#[derive(Default)]
pub(crate) struct HeadPicks {
    /// Computed exactly.
    pub(crate) full: Vec<Pick>,
    /// Computed cheaply, largest budgets first.
    pub(crate) cheap: Vec<Pick>,
    pub(crate) spent: Spending,
    pub(super) budgets: Vec<u32>,
    pub(super) order: Vec<u32>,
}

impl Economy {
    /// The parts of a head's work.
    pub(crate) fn parts<'a>(&'a self, head: usize, picks: &'a HeadPicks, draws: Option<&'a Draws>) -> [Part<'a>; 2] {
        let columns = head * self.rule.width..(head + 1) * self.rule.width;
        let way = match (&self.ways, draws) {
            (Ways::Drawn(_), Some(draws)) => Way::Drawn(&draws.heads[head].drawn),
            (Ways::Graded(heads), _) => Way::Graded(&heads[head]),
            (Ways::Int8(heads), _) => Way::Full(&heads[head]),
            (Ways::Mean | Ways::Drawn(_), _) => Way::Constant,
        };
        let bias = &self.bias[columns.clone()];
        [
            Part { head, way: Way::Full(&self.full[head]), picks: &picks.full, bias },
            Part { head, way, picks: &picks.cheap, bias: &self.offset()[columns] },
        ]
    }
}

impl HeadPicks {
    /// Forgets the last run.
    pub(crate) fn clear(&mut self) {
        self.full.clear();
        self.cheap.clear();
        self.spent = Spending::default();
    }

    /// Largest budgets first.
    pub(crate) fn sort(&mut self) {
        sort(&mut self.cheap);
    }
}
