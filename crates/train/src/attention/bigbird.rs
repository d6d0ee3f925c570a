//! BigBird (Zaheer et al. 2020, <https://arxiv.org/abs/2007.14062>).

use super::blocks::Table;
use super::globals::Windowed;
use super::input::{Heads, Input};
use super::{Attention, some_tokens, tokens};
use crate::random::Random;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use sparing_model::Error;

/// Blocks look at themselves, their neighbours, `random` other blocks drawn once for all from those of the longest sequence, and
/// the first `globals` blocks, which see all. Time and memory O(n · block · (3 + random + globals)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BigBird {
    /// Tokens of a block.
    pub block: usize,
    /// Random blocks of each block.
    pub random: usize,
    /// Blocks at the beginning that are global.
    pub globals: usize,
    /// Decides which blocks are random.
    #[serde(default)]
    pub seed: u64,
}

impl Attention for BigBird {
    fn check(&self) -> Result<(), Error> {
        tokens("random", self.random)?;
        tokens("globals", self.globals)?;
        some_tokens("block", self.block)
    }

    fn attend(&self, input: &Input<'_>) -> Result<Tensor<3>, Error> {
        let longest = input.layout.longest;
        input.by_head(|heads| Ok(self.mix(heads, longest)))
    }
}

impl BigBird {
    /// The blocks that each of so many blocks looks at, but for the global ones: never one twice. Random ones are drawn from all
    /// blocks of the longest sequence, so that they are the same in every batch.
    pub(crate) fn looked_at(&self, blocks: usize, of: usize) -> Vec<Vec<usize>> {
        let list = |block: usize| {
            let mut random = Random::at(self.seed, &[block as u64]);
            let mut near: Vec<usize> = (block.saturating_sub(1)..(block + 2).min(blocks)).collect();
            let beside = |other: &usize| other.abs_diff(block) <= 1;
            let mut others: Vec<usize> = (self.globals..of.max(blocks)).filter(|other| !beside(other)).collect();
            random.shuffle(&mut others);
            near.extend(others.into_iter().take(self.random).filter(|other| *other < blocks));
            near
        };
        (0..blocks).map(list).collect()
    }

    fn mix(&self, heads: &Heads, longest: usize) -> Tensor<3> {
        let length = heads.dims()[1];
        let size = self.block.min(length);
        let lists = self.looked_at(length.div_ceil(size), longest.div_ceil(size));
        Windowed {
            size,
            table: Table::new(lists.into_iter().map(|list| list.into_iter().map(Some).collect()).collect()),
            near: None,
            globals: self.globals * size,
            far: None,
            above: None,
            heads,
        }
        .mix()
    }
}
