//! Keeping so many tokens of an input, those that bring most to others (Goyal et al. 2020, "PoWER-BERT").

use super::{Choice, movable};
use crate::layout::Layout;
use sparing_model::LayerTokens;

/// Marks all others as leaving. Of equals the earlier stays; what is not a number stays first.
pub(super) fn keep(wanted: &LayerTokens, layout: &Layout, choice: &mut Choice) {
    let Choice { measures, leaving, ranked, .. } = choice;
    for (tokens, input) in layout.sequences.iter().zip(&layout.inputs) {
        ranked.clear();
        ranked.extend(movable(layout, tokens));
        let ends = tokens.len() - ranked.len();
        let stay = wanted.staying(*input).saturating_sub(ends);
        if stay >= ranked.len() {
            continue;
        }
        let measure = |row: usize| if measures[row].is_nan() { f32::INFINITY } else { measures[row] };
        ranked.sort_unstable_by(|a, b| measure(*b).total_cmp(&measure(*a)).then(a.cmp(b)));
        ranked[stay..].iter().for_each(|row| leaving[*row] = true);
    }
}
