//! Rows of a table, and their way back: a sum by index without a step that waits for another.
//!
//! Burn adds gradients to the table one token after the other. Here tokens are sorted by id; in each block of them a product
//! with the matrix of equal ids sums those that belong together; what began in an earlier block, one id per block at most,
//! is added; and the table's gradient reads every row that was looked up from where its sum stands.

use super::operation::{Computed, operation};
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData};

/// Tokens in a block.
const BLOCK: usize = 128;

/// The rows `ids` of `table`: `[rows, width]` to `[ids, width]`.
pub(crate) fn lookup(table: Tensor<2>, ids: Vec<u32>) -> Tensor<2> {
    operation([table], |[table]| {
        let (rows, device) = (table.dims()[0], table.device());
        let values = table.select(0, indices(ids.iter().map(|id| *id as i32), &device));
        let back = move |g: Tensor<2>, _: [bool; 1]| [Some(Sums::new(&ids, rows).of(g))];
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
    /// Places that begin a block within a run of one id, and where this began.
    rest: Vec<(i32, i32)>,
}

impl Sums {
    fn new(ids: &[u32], rows: usize) -> Sums {
        // A counting sort.
        let mut next = vec![0; rows + 1];
        ids.iter().for_each(|id| next[*id as usize + 1] += 1);
        (0..rows).for_each(|id| next[id + 1] += next[id]);
        let mut order = vec![0i32; ids.len()];
        for (token, id) in ids.iter().enumerate() {
            order[next[*id as usize]] = token as i32;
            next[*id as usize] += 1;
        }
        let mut sorted: Vec<i32> = order.iter().map(|token| ids[*token as usize] as i32).collect();
        let filled = (ids.len() + 1).next_multiple_of(BLOCK);
        order.resize(filled, 0);
        sorted.resize(filled, -1);
        let mut places = vec![ids.len() as i32; rows];
        let mut rest = Vec::new();
        for (place, id) in sorted.iter().enumerate().take(ids.len()) {
            if place == 0 || sorted[place - 1] != *id {
                places[*id as usize] = place as i32;
            } else if place.is_multiple_of(BLOCK) {
                rest.push((place as i32, places[*id as usize]));
            }
        }
        Sums { order, ids: sorted, places, rest }
    }

    /// `[tokens, width]` to `[rows, width]`.
    fn of(self, gradient: Tensor<2>) -> Tensor<2> {
        let (device, width) = (gradient.device(), gradient.dims()[1]);
        let (places, blocks) = (self.order.len(), self.order.len() / BLOCK);
        let square = [blocks, BLOCK, BLOCK];
        let across = indices(self.ids.iter().copied(), &device).reshape([blocks, 1, BLOCK]).expand(square);
        // Filling equals nothing, not even itself.
        let down = self.ids.iter().map(|id| if *id < 0 { -2 } else { *id });
        let down = indices(down, &device).reshape([blocks, BLOCK, 1]).expand(square);
        let equal = down.equal(across).float().cast(gradient.dtype());
        let sorted = gradient.select(0, indices(self.order.into_iter(), &device));
        let mut sums = equal.matmul(sorted.reshape([blocks, BLOCK, width])).reshape([places, width]);
        if !self.rest.is_empty() {
            let rest = sums.clone().select(0, indices(self.rest.iter().map(|(from, _)| *from), &device));
            let to = indices(self.rest.iter().map(|(_, to)| *to), &device);
            sums = sums.select_assign(0, to, rest, IndexingUpdateOp::Add);
        }
        sums.select(0, indices(self.places.into_iter(), &device))
    }
}

fn indices(values: impl ExactSizeIterator<Item = i32>, device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.collect();
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), device)
}
