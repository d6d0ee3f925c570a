//! What two models' answers to a row say of each other: how far one believes in the other's, and how far it was pushed.

use crate::median;
use sparing_tasks::{Outcome, kl};

/// Matthews' correlation of answers with what is true with a probability each.
pub(crate) fn correlation(rows: impl Iterator<Item = (f64, bool)>) -> f64 {
    // [answered no, answered yes] x [untrue, true]
    let mut counts = [[0.0; 2]; 2];
    for (truth, yes) in rows {
        counts[usize::from(yes)][0] += 1.0 - truth;
        counts[usize::from(yes)][1] += truth;
    }
    let [[right_no, missed], [wrong_yes, right_yes]] = counts;
    let sides = (right_yes + wrong_yes) * (right_yes + missed) * (right_no + wrong_yes) * (right_no + missed);
    if sides > 0.0 { (right_yes * right_no - wrong_yes * missed) / sides.sqrt() } else { 0.0 }
}

pub(crate) fn is_number(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Class { logits, .. } | Outcome::Labels { logits, .. } => logits.iter().all(|logit| logit.is_finite()),
        Outcome::Score { predicted, .. } => predicted.is_finite(),
        Outcome::Loss { nats, .. } => nats.is_finite(),
        Outcome::Tags { .. } | Outcome::Answer { .. } => true,
    }
}

/// Nats for classes, squares for numbers, share of wrong answers for the rest.
pub(crate) fn loss(outcome: &Outcome) -> f64 {
    match outcome {
        Outcome::Class { gold, logits, .. } => -softmax(logits).get(*gold).copied().unwrap_or(0.0).max(1e-30).ln(),
        Outcome::Labels { gold, logits, .. } => {
            let one = |(i, x): (usize, &f32)| softplus(f64::from(if gold.contains(&i) { -x } else { *x }));
            logits.iter().enumerate().map(one).sum()
        }
        Outcome::Score { gold, predicted } => (gold - predicted).powi(2),
        Outcome::Tags { gold, predicted, .. } => {
            let wrong = gold.iter().zip(predicted).filter(|(g, p)| g != p).count();
            wrong as f64 / gold.len().max(1) as f64
        }
        Outcome::Answer { f1, .. } => 1.0 - f1,
        Outcome::Loss { nats, tokens, .. } => nats / (*tokens).max(1) as f64,
    }
}

/// Divergence, doubt and sameness of a candidate's answer beside the baseline's.
pub(crate) fn beside(a: &Outcome, b: &Outcome) -> (f64, f64, f64) {
    match (a, b) {
        (Outcome::Class { predicted: x, logits: p, .. }, Outcome::Class { predicted: y, logits: q, .. }) => {
            let belief = softmax(p);
            let doubt = belief.get(*x).zip(belief.get(*y)).map_or(0.0, |(x, y)| x - y);
            (kl(p, q), doubt, f64::from(u8::from(x == y)))
        }
        (Outcome::Labels { predicted: x, logits: p, .. }, Outcome::Labels { predicted: y, logits: q, .. }) => {
            let divergence = p.iter().zip(q).map(|(p, q)| kl(&[*p, 0.0], &[*q, 0.0])).sum();
            (divergence, 0.0, f64::from(u8::from(x == y)))
        }
        (Outcome::Score { predicted: x, .. }, Outcome::Score { predicted: y, .. }) => {
            ((x - y).powi(2), 0.0, f64::from(u8::from((x - y).abs() < 0.1)))
        }
        _ => {
            let difference = (loss(a) - loss(b)).abs();
            (difference, 0.0, f64::from(u8::from(difference < 1e-6)))
        }
    }
}

/// How far the baseline's answer leads the next best, what it costs by the baseline's belief to answer that instead, and how much of
/// the lead the candidate takes away. `None` for what is no class.
pub(crate) fn pushed(a: &Outcome, b: &Outcome) -> Option<((f64, f64), f64)> {
    let (Outcome::Class { predicted, logits: p, .. }, Outcome::Class { logits: q, .. }) = (a, b) else { return None };
    let best = |logits: &[f32]| {
        let others = logits.iter().enumerate().filter(|(class, _)| class != predicted);
        others.max_by(|x, y| x.1.total_cmp(y.1)).map(|(class, x)| (class, *x))
    };
    let lead = |logits: &[f32]| Some(f64::from(logits.get(*predicted)? - best(logits)?.1));
    let belief = softmax(p);
    let doubt = belief.get(*predicted)? - belief.get(best(p)?.0)?;
    Some(((lead(p)?, doubt), lead(p)? - lead(q)?))
}

/// Mean square of a row's doubt, if any row's answer could be pushed as far as any other's was: where all answers stay, some may
/// still have been pushed further than it takes to change others.
pub(crate) fn foreseen(mut leads: Vec<(f64, f64)>, pushed: &[f64]) -> f64 {
    leads.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sums = vec![0.0];
    for (_, doubt) in &leads {
        sums.push(sums[sums.len() - 1] + doubt * doubt);
    }
    let overtaken = |push: &f64| sums[leads.partition_point(|(lead, _)| lead < push)];
    pushed.iter().map(overtaken).sum::<f64>() / (leads.len().max(1) as f64).powi(2)
}

/// What a row costs that is less sure than most that were seen (its lead is anywhere up to the middle one), if it is pushed as far as others
/// were, towards the other answer or away from it. Of two answers, the one that leads by x is believed `tanh(x / 2)` more.
pub(crate) fn unsure(leads: &[(f64, f64)], pushed: &[f64]) -> f64 {
    let middle = median(leads.iter().map(|(lead, _)| *lead).collect());
    // Twice the logarithm of cosh(push / 2), which itself would soon be out of bounds.
    let cost = |push: &f64| {
        let push = push.abs().min(middle);
        (push + 2.0 * ((-push).exp().ln_1p() - std::f64::consts::LN_2)) / middle
    };
    if middle > 0.0 { pushed.iter().map(cost).sum::<f64>() / pushed.len().max(1) as f64 } else { 0.0 }
}

pub(crate) fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = logits.iter().map(|x| f64::from(x - largest).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.into_iter().map(|e| e / sum).collect()
}

/// `ln(1 + e^x)`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_by_hand() {
        let class = |gold, logits: [f32; 2]| Outcome::Class { gold, predicted: 0, logits: logits.to_vec() };
        assert!((loss(&class(0, [0.0, 0.0])) - 2f64.ln()).abs() < 1e-9);
        assert!((loss(&class(1, [0.0, 3.0])) - (-3f64).exp().ln_1p()).abs() < 1e-6);
        let labels = Outcome::Labels { gold: vec![1], predicted: vec![], logits: vec![0.0, 0.0] };
        assert!((loss(&labels) - 2.0 * 2f64.ln()).abs() < 1e-9);
        assert_eq!(loss(&Outcome::Score { gold: 2.0, predicted: 0.5 }), 2.25);
    }

    #[test]
    fn correlations_with_what_is_believed() {
        // Sure beliefs are labels: 3 of 4 answers right, 2 x 2 counts [[1, 0], [1, 2]].
        let sure = [(1.0, true), (1.0, true), (0.0, true), (0.0, false)];
        assert!((correlation(sure.into_iter()) - 2.0 / 12f64.sqrt()).abs() < 1e-12);
        // Half a belief counts half on either side, and answers that are all the same say nothing.
        assert_eq!(correlation([(0.5, true), (0.5, false)].into_iter()), 0.0);
        assert_eq!(correlation([(1.0, true), (0.0, true)].into_iter()), 0.0);
        // Where yes is rare, one doubtful yes less costs more of the correlation than of the answers.
        let rows = |last: bool| (0..20).map(move |i| if i == 19 { (0.9, last) } else { (0.02, false) });
        let rows = |last| rows(last).chain([(0.95, true)]);
        assert!(correlation(rows(true)) - correlation(rows(false)) > 3.0 * (0.8 / 21.0));
    }

    #[test]
    fn a_lead_is_taken_away_by_what_comes_closer() {
        let class = |logits: [f32; 3]| Outcome::Class { gold: 0, predicted: 1, logits: logits.to_vec() };
        let ((lead, doubt), push) = pushed(&class([0.0, 3.0, 1.0]), &class([2.5, 3.0, 1.0])).unwrap();
        // Two ahead of the third class, then half ahead of the first.
        let belief = softmax(&[0.0, 3.0, 1.0]);
        assert_eq!((lead, push), (2.0, 1.5));
        assert!((doubt - (belief[1] - belief[2])).abs() < 1e-12);
        // Further ahead than before: pushed the other way.
        assert!(pushed(&class([0.0, 3.0, 1.0]), &class([0.0, 9.0, 1.0])).unwrap().1 < 0.0);
        assert_eq!(pushed(&class([0.0; 3]), &Outcome::Score { gold: 0.0, predicted: 0.0 }), None);
    }

    #[test]
    fn answers_that_stay_are_pushed_all_the_same() {
        let leads = [(0.5, 0.2), (1.0, 0.4), (2.0, 0.7), (4.0, 0.9)];
        let rows = |pushes: [f64; 4]| foreseen(leads.to_vec(), &pushes);
        assert_eq!(rows([0.4, -1.0, 0.3, 0.0]), 0.0);
        // The sure one is pushed by three and stays; so far the other three would have gone.
        assert!((rows([0.4, -1.0, 0.3, 3.0]) - (0.04 + 0.16 + 0.49) / 16.0).abs() < 1e-12);
        assert_eq!(foreseen(vec![], &[]), 0.0);
    }

    #[test]
    fn rows_that_are_all_sure_say_nothing_of_those_that_are_not() {
        let leads = [(4.0, 0.96), (5.0, 0.98), (6.0, 0.99)];
        // Nobody is overtaken, whichever way they are pushed.
        assert_eq!(foreseen(leads.to_vec(), &[2.0, -2.0, 1.0]), 0.0);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        let cost = |push: f64| 2.0 * (0.5 * push).cosh().ln() / 5.0;
        near(unsure(&leads, &[2.0, -2.0, 1.0]), (2.0 * cost(2.0) + cost(1.0)) / 3.0);
        // Further than the middle one's lead is as far as it goes.
        near(unsure(&leads, &[50.0, 9.0, 5.0]), cost(5.0));
        assert!(unsure(&leads, &[0.01; 3]) < 1e-5, "what hardly moves will not change");
        assert_eq!((unsure(&[], &[]), unsure(&[(0.0, 0.0)], &[1.0])), (0.0, 0.0));
    }

    #[test]
    fn what_is_not_a_number_is_known() {
        let class = |logits: [f32; 2]| Outcome::Class { gold: 0, predicted: 0, logits: logits.to_vec() };
        assert!(is_number(&class([0.0, 1.0])) && !is_number(&class([0.0, f32::NAN])));
        assert!(!is_number(&Outcome::Score { gold: 0.0, predicted: f64::INFINITY }));
    }

    #[test]
    fn an_answer_the_baseline_half_believes_in_costs_little() {
        let class = |predicted, logits: [f32; 2]| Outcome::Class { gold: 0, predicted, logits: logits.to_vec() };
        let (_, sure, _) = beside(&class(0, [4.0, -4.0]), &class(1, [-1.0, 1.0]));
        let (_, unsure, same) = beside(&class(0, [0.1, 0.0]), &class(1, [-1.0, 1.0]));
        assert!(sure > 0.99 && unsure < 0.06 && same == 0.0, "{sure} {unsure}");
        assert_eq!(beside(&class(0, [1.0, 0.0]), &class(0, [1.0, 0.0])), (0.0, 0.0, 1.0));
    }
}
