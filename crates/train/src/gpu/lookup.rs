//! Rows of a table, and their way back: a sum by index without a step that waits for another.
//!
//! Burn adds gradients to the table one token after the other. Here tokens are sorted by id; in each block of them a product
//! with the matrix of equal ids sums those that belong together; what began in an earlier block, one id per block at most,
//! is added; and the table's gradient reads every row that was looked up from where its sum stands.

use super::operation::{Computed, operation};
use crate::PaddedBatch;
use crate::batch::HostBatch;
use crate::feed::{self, Moment};
use burn::tensor::{IndexingUpdateOp, Int, Tensor};
use sparing_model::Error;

/// Tokens in a block.
const BLOCK: usize = 128;

/// Which rows of a table are looked up, and where their gradients go.
pub(crate) struct Looked {
    /// Lists one behind the other: which rows, and, where the table learns, what [`Sums`] has.
    lists: Tensor<1, Int>,
    tokens: usize,
}

impl Looked {
    /// Rows by their numbers; the table is `[rows, width]`.
    pub(crate) fn new(table: &Tensor<2>, ids: Vec<i32>) -> Looked {
        let again = ids.clone();
        Looked::later(table, ids, move |_| Ok(again.clone()))
    }

    /// Rows that a batch says.
    pub(crate) fn of(table: &Tensor<2>, batch: &PaddedBatch, ids: fn(&HostBatch) -> Vec<i32>) -> Looked {
        Looked::later(table, ids(&batch.host), move |moment| Ok(ids(&moment.batch)))
    }

    fn later(table: &Tensor<2>, now: Vec<i32>, later: impl Fn(&Moment) -> Result<Vec<i32>, Error> + 'static) -> Looked {
        let (tokens, rows, device) = (now.len(), table.dims()[0], table.device());
        let lists: fn(&[i32], usize) -> Vec<i32> = match device.is_autodiff() {
            true => |ids, rows| Sums::new(ids, rows).lists(ids),
            false => |ids, _| ids.to_vec(),
        };
        let on = device.without_autodiff();
        Looked { tokens, lists: feed::ints(&on, lists(&now, rows), move |moment| Ok(lists(&later(moment)?, rows))) }
    }
}

/// `[rows, width]` to `[tokens, width]`.
pub(crate) fn lookup(table: Tensor<2>, looked: &Looked) -> Tensor<2> {
    let Looked { lists, tokens } = looked;
    let (lists, tokens) = (lists.clone(), *tokens);
    operation([table], |[table]| {
        let rows = table.dims()[0];
        let values = table.select(0, lists.clone().narrow(0, 0, tokens));
        let back = move |g: Tensor<2>, _: [bool; 1]| [Some(sums(g, &lists, rows))];
        Computed { values, back }
    })
}

/// Rows in another order; `back` is the order that undoes it, and the gradient's way.
pub(crate) fn permuted_rows(rows: Tensor<2>, order: Tensor<1, Int>, back: Tensor<1, Int>) -> Tensor<2> {
    operation([rows], |[rows]| {
        let values = rows.select(0, order);
        Computed { values, back: move |g: Tensor<2>, _: [bool; 1]| [Some(g.select(0, back))] }
    })
}

/// Where what is summed.
struct Sums {
    /// Tokens by id, filled up to whole blocks with the first one; at least one place is filling.
    order: Vec<i32>,
    /// The id at each place; -1 where there is filling.
    ids: Vec<i32>,
    /// The first place of each row of the table; where it was not looked up, the first filling.
    places: Vec<i32>,
    /// Of each block the place that begins it within a run of one id, and where this began; two fillings, which are zeros, where there is none.
    rest: [Vec<i32>; 2],
}

impl Sums {
    fn new(ids: &[i32], rows: usize) -> Sums {
        // A counting sort.
        let mut next = vec![0; rows + 1];
        ids.iter().for_each(|id| next[*id as usize + 1] += 1);
        (0..rows).for_each(|id| next[id + 1] += next[id]);
        let mut order = vec![0i32; ids.len()];
        for (token, id) in ids.iter().enumerate() {
            order[next[*id as usize]] = token as i32;
            next[*id as usize] += 1;
        }
        let mut sorted: Vec<i32> = order.iter().map(|token| ids[*token as usize]).collect();
        let filled = places(ids.len());
        order.resize(filled, 0);
        sorted.resize(filled, -1);
        let filling = ids.len() as i32;
        let mut firsts = vec![filling; rows];
        let mut rest = [vec![filling; filled / BLOCK], vec![filling; filled / BLOCK]];
        for (place, id) in sorted.iter().enumerate().take(ids.len()) {
            if place == 0 || sorted[place - 1] != *id {
                firsts[*id as usize] = place as i32;
            } else if place.is_multiple_of(BLOCK) {
                rest[0][place / BLOCK] = place as i32;
                rest[1][place / BLOCK] = firsts[*id as usize];
            }
        }
        Sums { order, ids: sorted, places: firsts, rest }
    }

    /// One behind the other, each from a whole block on: tokens' ids, then what is here.
    fn lists(self, tokens: &[i32]) -> Vec<i32> {
        // Filling equals nothing, not even itself.
        let other = self.ids.iter().map(|id| if *id < 0 { -2 } else { *id }).collect();
        let [from, to] = self.rest;
        let mut all = Vec::new();
        for list in [tokens.to_vec(), self.order, self.ids, other, from, to, self.places] {
            all.extend(list);
            all.resize(all.len().next_multiple_of(BLOCK), 0);
        }
        all
    }
}

/// Places for so many tokens.
fn places(tokens: usize) -> usize {
    (tokens + 1).next_multiple_of(BLOCK)
}

/// Gradients of tokens `[tokens, width]` to those of a table `[rows, width]`, by the lists of [`Sums::lists`].
fn sums(gradient: Tensor<2>, lists: &Tensor<1, Int>, rows: usize) -> Tensor<2> {
    let [tokens, width] = gradient.dims();
    let (places, blocks) = (places(tokens), places(tokens) / BLOCK);
    let mut start = 0;
    let [_, order, ids, other, from, to, firsts] =
        [tokens, places, places, places, blocks, blocks, rows].map(|length| {
            let list = lists.clone().narrow(0, start, length);
            start = (start + length).next_multiple_of(BLOCK);
            list
        });
    let square = [blocks, BLOCK, BLOCK];
    let (across, down) = (ids.reshape([blocks, 1, BLOCK]), other.reshape([blocks, BLOCK, 1]));
    let equal = down.expand(square).equal(across.expand(square)).float().cast(gradient.dtype());
    let sorted = gradient.select(0, order);
    let sums = equal.matmul(sorted.reshape([blocks, BLOCK, width])).reshape([places, width]);
    let rest = sums.clone().select(0, from);
    sums.select_assign(0, to, rest, IndexingUpdateOp::Add).select(0, firsts)
}
