//! What holds for all: causal forms do not look ahead, padding is not looked at, gradients reach every tensor.

use super::super::{Kind, Longformer, Reformer, Routing, SignMatching, Sizes, catalogue};
use super::Case;

const SIZES: Sizes = Sizes { length: 400, width: 16, attention_width: 16, heads: 2 };

/// Changing a token changes nothing before it. Hashed attention is taken in one chunk, routing with one cluster and sign matching
/// with all keys: what is chosen may depend on later tokens, what is read may not. Longformer's causal form has no global tokens.
#[test]
fn causal_kinds_do_not_look_ahead() {
    let mut tried = 0;
    for (name, kind) in catalogue().unwrap() {
        let kind = match kind {
            Kind::Longformer(_) => Kind::Longformer(Longformer { window: 64, globals: 0 }),
            Kind::Reformer(reformer) => Kind::Reformer(Reformer { chunk: SIZES.length, ..reformer }),
            Kind::Routing(routing) => Kind::Routing(Routing { clusters: 1, ..routing }),
            Kind::SignMatching(_) => Kind::SignMatching(SignMatching { keys: SIZES.length }),
            other => other,
        };
        if !kind.mechanism().causal() {
            continue;
        }
        tried += 1;
        for token in [1, 70, 150, 399] {
            let mut case = Case::of(kind.clone(), SIZES, &[400], true, 7);
            let before = case.mixed();
            case.disturb(0, token);
            let after = case.mixed();
            let mut own: f64 = 0.0;
            for group in 0..2 {
                for at in 0..400 * 8 {
                    let difference = (before[group * 400 * 8 + at] - after[group * 400 * 8 + at]).abs();
                    assert!(
                        at / 8 >= token || difference < 1e-5,
                        "{name}: token {} sees {token}: {difference}",
                        at / 8
                    );
                    own = own.max(if at / 8 >= token { difference } else { 0.0 });
                }
            }
            // Random scores aside, a token's own change is seen by somebody.
            assert!(own > 1e-4, "{name}: nobody sees token {token}");
        }
    }
    assert!(tried >= 23, "{tried}");
}

/// What stands in padding's place changes nothing.
#[test]
fn padding_is_not_looked_at() {
    for (name, kind) in catalogue().unwrap() {
        let mut case = Case::of(kind, SIZES, &[250, 400], false, 3);
        let before = case.mixed();
        [250, 251, 300, 399].into_iter().for_each(|token| case.disturb(0, token));
        let apart = case.apart(&before, &case.mixed());
        assert!(apart < 2e-5, "{name}: {apart}");
    }
}

/// Padding changes nothing: a sequence alone, with no padding at all, and beside a longer one.
#[test]
fn padding_changes_nothing() {
    for ((name, kind), real) in catalogue().unwrap().into_iter().flat_map(|known| [(known.clone(), 256), (known, 260)])
    {
        let beside = Case::of(kind.clone(), SIZES, &[real, 400], false, 3);
        let mut alone = Case::of(kind, SIZES, &[real], false, 3).cut(real);
        alone.x.copy_from_slice(&beside.x[..real * SIZES.width]);
        let (a, b) = (alone.mixed(), beside.mixed());
        let each = SIZES.head_width();
        let first: Vec<f64> = b.chunks(400 * each).take(2).flat_map(|group| group[..real * each].to_vec()).collect();
        let apart = alone.apart(&a, &first);
        assert!(apart < 2e-5, "{name} of {real}: {apart}");
    }
}

/// Every trained tensor has a gradient that is finite and not zero, in both forms, and recording it changes no result.
#[test]
fn gradients_reach_every_tensor() {
    let both = |(name, kind): (String, Kind)| [(name.clone(), kind.clone(), false), (name, kind, true)];
    let all = catalogue().unwrap().into_iter().flat_map(both);
    for (name, kind, causal) in all.filter(|(_, kind, causal)| !causal || kind.mechanism().causal()) {
        let case = Case::of(kind, SIZES, &[400, 261], causal, 5);
        let plain = case.mixed();
        case.with(true, |input| {
            let mixed = case.kind.attend(input).unwrap();
            let apart = case.apart(&plain, &super::numbers(mixed.clone().inner()));
            assert!(apart < 1e-4, "{name} causal {causal}: {apart}");
            let mut gradients = (mixed.clone() * mixed).sum().backward();
            for (tensor, parameter) in input.parameters.iter().filter(|(_, p)| p.trainable) {
                let found = parameter.value.grad_remove(&mut gradients);
                let found = found.unwrap_or_else(|| panic!("{name} causal {causal}: {tensor} has no gradient"));
                let size = found.abs().max().into_scalar::<f32>();
                assert!(size > 0.0 && size.is_finite(), "{name} causal {causal}: {tensor}: {size}");
            }
        });
    }
}
