//! What may be economised, and how that is searched for.

use serde::{Deserialize, Serialize};
use sparing_report::Focus;

/// How plans are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Ours: by what an economy saves for what it changes, both measured, with the rest making up for what is gone.
    Cost,
    /// The paper's: blocks, then heads and weight groups, in a queue, each against two thresholds.
    Paper,
    /// Whole layers from the top (Sajjad et al. 2020).
    TopLayers,
    /// By the slope of the loss in an element's direction (Molchanov et al. 2017).
    Taylor,
    /// The paper's, in random order.
    Random,
    /// The paper's, without granularity: everything in one queue.
    Flat,
    /// The paper's, with tighter thresholds for larger elements.
    Adaptive,
}

impl Strategy {
    /// Neurons of a weight group where nobody says how many: the paper's W (Table 9), or finer for ours.
    pub fn group(self) -> usize {
        if self == Strategy::Cost { 128 } else { 256 }
    }
}

/// What may be economised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Economy {
    /// Attention and feed-forward blocks are removed.
    Blocks,
    /// Heads are removed.
    Heads,
    /// Feed-forward blocks get narrower.
    Width,
    /// Tokens that bring little to others leave.
    Tokens,
    /// Tokens are merged into others that are like them.
    Merge,
    /// Attention looks at a few keys (sign matching); for long texts.
    Keys,
    /// Values are as precise as attention needs them.
    Values,
    /// Linear maps in bf16 or int8.
    Precision,
    /// Weights stored in fewer bits.
    Bits,
}

impl Economy {
    /// All of them.
    pub const ALL: [Economy; 9] = [
        Economy::Blocks,
        Economy::Heads,
        Economy::Width,
        Economy::Tokens,
        Economy::Merge,
        Economy::Keys,
        Economy::Values,
        Economy::Precision,
        Economy::Bits,
    ];

    /// Whether it can save anything that matters with this focus, and is one that the strategy looks for.
    pub fn suits(self, focus: Focus, strategy: Strategy) -> bool {
        match self {
            Economy::Blocks | Economy::Heads | Economy::Width => true,
            Economy::Tokens | Economy::Merge | Economy::Values => focus == Focus::Speed && strategy == Strategy::Cost,
            // Whole layers are kept or removed: nothing is approximated.
            Economy::Keys => focus == Focus::Speed && strategy != Strategy::TopLayers,
            Economy::Precision => focus == Focus::Speed,
            Economy::Bits => focus == Focus::Size,
        }
    }

    /// Whether it is looked for where nobody says what to look for. Merging takes as long to try as letting tokens leave, and
    /// loses more for what it saves.
    pub fn is_usual(self) -> bool {
        self != Economy::Merge
    }

    /// Whether it is chosen text by text while the model runs.
    pub fn is_running(self) -> bool {
        matches!(self, Economy::Tokens | Economy::Merge | Economy::Keys | Economy::Values)
    }

    /// The name in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Economy::Blocks => "blocks",
            Economy::Heads => "heads",
            Economy::Width => "width",
            Economy::Tokens => "tokens",
            Economy::Merge => "merge",
            Economy::Keys => "keys",
            Economy::Values => "values",
            Economy::Precision => "precision",
            Economy::Bits => "bits",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_groups_are_as_published_but_for_ours() {
        assert_eq!([Strategy::Cost, Strategy::Paper, Strategy::Flat].map(Strategy::group), [128, 256, 256]);
    }

    #[test]
    fn keys_suit_strategies_that_approximate() {
        let suits = |economy: Economy, strategy| economy.suits(Focus::Speed, strategy);
        assert!([Strategy::Cost, Strategy::Paper, Strategy::Random].iter().all(|s| suits(Economy::Keys, *s)));
        assert!(!suits(Economy::Keys, Strategy::TopLayers) && !Economy::Keys.suits(Focus::Size, Strategy::Paper));
        assert!(suits(Economy::Merge, Strategy::Cost) && !suits(Economy::Merge, Strategy::Paper));
        let unusual: Vec<Economy> = Economy::ALL.into_iter().filter(|economy| !economy.is_usual()).collect();
        assert_eq!(unusual, [Economy::Merge]);
    }
}
