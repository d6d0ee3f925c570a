//! The ways to spend less on tokens: their names in plans, and which numbers make sense for them.

use super::{ByLayer, Tokens};

/// What happens to tokens that bring little to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Drop,
    Keep,
    Merge,
    Skip,
}

impl Way {
    /// All, in the order that plans are written in.
    pub(super) const EVERY: [Way; 4] = [Way::Drop, Way::Keep, Way::Merge, Way::Skip];

    /// Its name in a plan.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Drop => "drop",
            Way::Keep => "keep",
            Way::Merge => "merge",
            Way::Skip => "skip",
        }
    }

    /// The number that economises nothing.
    pub(super) fn nothing(self) -> f32 {
        if self == Way::Keep { 1.0 } else { 0.0 }
    }

    /// Whether tokens are fewer afterwards.
    pub(super) fn leaves_fewer(self) -> bool {
        self != Way::Skip
    }

    /// Its numbers in a plan.
    pub(super) fn of(self, tokens: &Tokens) -> Option<&ByLayer> {
        match self {
            Way::Drop => tokens.drop.as_ref(),
            Way::Keep => tokens.keep.as_ref(),
            Way::Merge => tokens.merge.as_ref(),
            Way::Skip => tokens.skip.as_ref(),
        }
    }

    /// The same, to be written.
    pub(super) fn of_mut(self, tokens: &mut Tokens) -> &mut ByLayer {
        let numbers = match self {
            Way::Drop => &mut tokens.drop,
            Way::Keep => &mut tokens.keep,
            Way::Merge => &mut tokens.merge,
            Way::Skip => &mut tokens.skip,
        };
        numbers.get_or_insert_with(|| ByLayer::new(self.nothing()))
    }

    /// Whether a number makes sense.
    pub(super) fn allows(self, number: f32) -> bool {
        match self {
            Way::Drop | Way::Skip => number.is_finite() && number >= 0.0,
            Way::Keep => number.is_finite() && number > 0.0 && (number <= 1.0 || number.fract() == 0.0),
            Way::Merge => (0.0..=0.5).contains(&number),
        }
    }

    /// What numbers do.
    pub(super) fn needs(self) -> &'static str {
        match self {
            Way::Drop | Way::Skip => "0 or a number above it is needed, such as 0.5 (of an even share)",
            Way::Keep => "a share above 0 and up to 1 is needed, such as 0.8 (of an input's tokens), or a count",
            Way::Merge => "a share from 0 to 0.5 is needed, such as 0.1 (of the tokens that are there)",
        }
    }
}
