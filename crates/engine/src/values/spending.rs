//! What was really spent on values: budgets depend on the input, so this is counted while it runs.

use super::Rule;
use sparing_model::Length;

/// Operations spent on economised layers since the last reset, beside the exact ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spending {
    /// Operations of the value encoding X·W_v, real tokens, as done.
    pub values: u64,
    /// The same, exactly.
    pub values_exact: u64,
    /// Operations of A·(X·W_v) behind it, which no budget changes.
    pub mixing: u64,
    /// Operations of the whole model, exactly.
    pub model_exact: u64,
    /// Operations of the value encoding as the authors count them: equation 9's samples for real tokens, none for padding.
    pub authors: u64,
    /// The same, exactly, with padding (`length: padded`), else without.
    pub authors_exact: u64,
    /// Heads x tokens.
    pub tokens: u64,
    /// Those that were computed exactly.
    pub full: u64,
    /// Operations of the whole model that were not done because tokens were dropped or skipped a block.
    pub skipped: u64,
}

impl Spending {
    /// One token of one head.
    pub(crate) fn add(&mut self, rule: &Rule, r: u32, exact: bool, cost: u64) {
        let (inputs, width) = (rule.inputs as u64, rule.width as u64);
        self.values += cost;
        self.values_exact += 2 * inputs * width;
        self.authors += 2 * r as u64 * width;
        self.tokens += 1;
        self.full += exact as u64;
    }

    /// One sequence of a layer.
    pub(crate) fn add_sequence(&mut self, rule: &Rule, tokens: usize) {
        let tokens = match rule.length {
            Length::Actual => tokens,
            // What is longer the authors would have cut.
            Length::Padded(length) => length.max(tokens),
        };
        self.authors_exact += 2 * (tokens * rule.inputs * rule.width * rule.heads) as u64;
    }

    /// Adds another's.
    pub(crate) fn join(&mut self, other: &Spending) {
        self.values += other.values;
        self.values_exact += other.values_exact;
        self.mixing += other.mixing;
        self.model_exact += other.model_exact;
        self.authors += other.authors;
        self.authors_exact += other.authors_exact;
        self.tokens += other.tokens;
        self.full += other.full;
        self.skipped += other.skipped;
    }

    /// How many times fewer operations the value encoding took, on real tokens.
    pub fn values_ratio(&self) -> f64 {
        ratio(self.values_exact, self.values)
    }

    /// The same for A·X·W_v.
    pub fn attention_ratio(&self) -> f64 {
        ratio(self.values_exact + self.mixing, self.values + self.mixing)
    }

    /// The same for the whole model.
    pub fn model_ratio(&self) -> f64 {
        ratio(self.model_exact, (self.model_exact + self.values).saturating_sub(self.values_exact + self.skipped))
    }

    /// The value encoding as the authors count it: padding is work saved.
    pub fn authors_ratio(&self) -> f64 {
        ratio(self.authors_exact, self.authors)
    }
}

fn ratio(exact: u64, spent: u64) -> f64 {
    if exact == 0 { 1.0 } else { exact as f64 / (spent as f64).max(1.0) }
}
