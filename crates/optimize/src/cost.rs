//! Our own search: every economy is an axis of steps, each step saves something and changes something. Both are measured
//! on a few steps and filled in between; the cheapest changes are combined; what comes out is tried, and the
//! last steps are taken one by one.

use crate::search::{Economy, Event, Search, Tried};
use crate::{Kind, Left, Recipe};
use sparing_model::{AttentionPlan, Bits, ByLayer, Error, Tokens};
use sparing_report::Focus;

/// Measures of attention below which tokens leave; see [`Tokens::drop`].
const CUTS: [f32; 8] = [0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0];
/// Bits to store weights in.
const BITS: [u32; 5] = [8, 6, 5, 4, 3];
/// How often the total change is halved in the search for a combination.
const HALVINGS: usize = 7;

/// The bits of a part.
type PartOf = fn(&mut Bits) -> &mut Option<u32>;

/// One way to economise, in steps.
struct Axis {
    name: String,
    what: What,
    /// From the mildest to the harshest.
    steps: Vec<Step>,
}

#[derive(Clone, Copy)]
enum What {
    Site(usize),
    Tokens,
    Bits(PartOf),
}

#[derive(Clone, Copy)]
struct Step {
    /// Units left, a cut's number, or bits.
    to: usize,
    /// Share of the whole time (or bytes) that it saves, from the axis's beginning.
    saved: f64,
    /// How much it changes the answers.
    change: f64,
}

/// Where on each axis a combination stands: number of steps taken.
type Place = Vec<usize>;

pub(crate) fn search(search: &mut Search<'_>) -> Result<(), Error> {
    let begin = search.precision()?;
    let begin = search.rounded(begin)?;
    let mut axes = axes(search, &begin)?;
    probe(search, &begin, &mut axes)?;
    axes.retain(|axis| axis.steps.iter().any(|step| step.saved > 0.0 && step.change.is_finite()));
    let place = match search.settings.focus {
        Focus::Accuracy => vec![0; axes.len()],
        _ => combine(search, &begin, &axes)?,
    };
    refine(search, &begin, &axes, place)
}

/// What can be economised, with what each step saves.
fn axes(search: &mut Search<'_>, begin: &Recipe) -> Result<Vec<Axis>, Error> {
    let settings = search.settings;
    let shares = shares(search, begin)?;
    let mut axes = Vec::new();
    for (number, site) in search.shop.anatomy.sites.iter().enumerate() {
        let economy = if site.kind == Kind::Attention { Economy::Heads } else { Economy::Width };
        let all = site.units.len();
        let may = |left: usize| if left == 0 { settings.may(Economy::Blocks) } else { settings.may(economy) };
        let rungs = search.shop.ladder(number).iter().map(|rung| rung.kept.len());
        let step = |left: usize| {
            let saved = shares[number] * (all - left) as f64 / all as f64;
            Step { to: left, saved, change: f64::INFINITY }
        };
        let steps = rungs.filter(|left| *left < all && may(*left)).map(step).collect();
        axes.push(Axis { name: site.name(), what: What::Site(number), steps });
    }
    if settings.may(Economy::Tokens) && settings.focus == Focus::Speed && tokens_can_leave(search) {
        let step = |cut: usize| Step { to: cut, saved: 0.0, change: f64::INFINITY };
        axes.push(Axis { name: "tokens".into(), what: What::Tokens, steps: (0..CUTS.len()).map(step).collect() });
    }
    if settings.may(Economy::Bits) && settings.focus == Focus::Size {
        axes.extend(bit_axes(search, begin));
    }
    Ok(axes)
}

/// Whether this model's tokens can be dropped at all.
fn tokens_can_leave(search: &Search<'_>) -> bool {
    with_cut(None, CUTS[0]).check_for(&search.shop.model.architecture).is_ok()
}

fn with_cut(attention: Option<&AttentionPlan>, cut: f32) -> AttentionPlan {
    let mut attention = attention.cloned().unwrap_or_default();
    let tokens = attention.tokens.get_or_insert_with(Tokens::default);
    tokens.drop = Some(ByLayer::new(cut));
    attention
}

/// Fewer bits, part by part.
fn bit_axes(search: &Search<'_>, begin: &Recipe) -> Vec<Axis> {
    let parts: [(&str, PartOf); 3] = [
        ("bits of embeddings", |b| &mut b.embeddings),
        ("bits of attention", |b| &mut b.attention),
        ("bits of feed-forward blocks", |b| &mut b.ffn),
    ];
    let bytes = |recipe: &Recipe| search.shop.make(recipe).map_or(0.0, |model| model.weights.size_in_bytes() as f64);
    let whole = bytes(begin).max(1.0);
    let axis = |(name, part): (&str, PartOf)| {
        let mut steps = Vec::new();
        for bits in BITS {
            let mut recipe = begin.clone();
            let all = recipe.bits.get_or_insert_with(Bits::default);
            if part(all).is_some_and(|now| now <= bits) {
                continue;
            }
            *part(all) = Some(bits);
            steps.push(Step { to: bits as usize, saved: 1.0 - bytes(&recipe) / whole, change: f64::INFINITY });
        }
        Axis { name: name.into(), what: What::Bits(part), steps }
    };
    parts.into_iter().map(axis).collect()
}

/// Share of the time (or bytes) that goes into the units of each site.
fn shares(search: &Search<'_>, begin: &Recipe) -> Result<Vec<f64>, Error> {
    let sites = &search.shop.anatomy.sites;
    if search.settings.focus == Focus::Speed {
        return Ok((0..sites.len()).map(|site| search.costs.share(site)).collect());
    }
    let whole = search.shop.make(begin)?.weights.size_in_bytes() as f64;
    let bytes = |of: &crate::Site| {
        let bits = begin.bits.and_then(|b| if of.kind == Kind::Attention { b.attention } else { b.ffn });
        let each = bits.map_or(4.0, |bits| f64::from(bits) / 8.0);
        (of.units.len() * of.unit_weights) as f64 * each / whole
    };
    Ok(sites.iter().map(bytes).collect())
}

/// Measures how much steps change the answers, on a few of them.
fn probe(search: &mut Search<'_>, begin: &Recipe, axes: &mut [Axis]) -> Result<(), Error> {
    (search.tell)(Event::Phase("what each part is worth", axes.iter().map(|axis| axis.steps.len().min(2)).sum()));
    for axis in axes {
        if axis.steps.is_empty() {
            continue;
        }
        let last = axis.steps.len() - 1;
        let mut known: Vec<(usize, f64)> = Vec::new();
        for step in [last / 2, last] {
            if known.iter().any(|(at, _)| *at == step) {
                continue;
            }
            let recipe = recipe(begin, std::slice::from_ref(axis), &vec![step + 1]);
            if let What::Tokens = axis.what {
                axis.steps[step].saved = search.judge.saved(&search.shop.shape(&recipe)?, search.stop)?;
            }
            let tried = search.attempt(&axis.name, &recipe, axis.steps[step].saved)?;
            known.push((step, tried.verdict.divergence.max(1e-7)));
        }
        fill(search, axis, &known);
    }
    Ok(())
}

/// Fills in what was not measured: the change grows as a power of the error that the surgeon foresees (of the number of the
/// step elsewhere), through the two points that were measured.
fn fill(search: &Search<'_>, axis: &mut Axis, known: &[(usize, f64)]) {
    let foreseen: Vec<f64> = match axis.what {
        What::Site(site) => {
            let of =
                |left: usize| search.shop.ladder(site).iter().find(|r| r.kept.len() == left).map_or(1.0, |r| r.error);
            axis.steps.iter().map(|step| of(step.to).max(1e-12)).collect()
        }
        What::Tokens => axis.steps.iter().map(|step| f64::from(CUTS[step.to]).powi(2)).collect(),
        // A bit less is four times the squared error.
        What::Bits(_) => axis.steps.iter().map(|step| 0.25f64.powi(step.to as i32)).collect(),
    };
    let (first, last) = (known[0], known[known.len() - 1]);
    let span = (foreseen[last.0] / foreseen[first.0]).ln();
    let power = if span > 1e-6 { ((last.1 / first.1).ln() / span).clamp(0.3, 3.0) } else { 1.0 };
    let saved: Vec<f64> = known.iter().map(|(at, _)| axis.steps[*at].saved).collect();
    for (number, step) in axis.steps.iter_mut().enumerate() {
        let near = if number <= first.0 { first } else { last };
        step.change = near.1 * (foreseen[number] / foreseen[near.0]).powf(power);
        if let What::Tokens = axis.what {
            // Through nothing, the first and the last point.
            let (a, b) = (CUTS[first.0], CUTS[last.0]);
            let (x, ya, yb) = (CUTS[step.to], saved[0].max(0.0), saved[saved.len() - 1].max(0.0));
            let part = |from: f32, to: f32| f64::from((x - from) / (to - from));
            step.saved = if x <= a { ya * f64::from(x / a) } else { ya + (yb - ya) * part(a, b) };
        }
    }
}

/// Share of the layers' time that tokens save at a place.
fn tokens(axes: &[Axis], place: &Place) -> f64 {
    let taken = axes.iter().zip(place).find(|(axis, taken)| matches!(axis.what, What::Tokens) && **taken > 0);
    taken.map_or(0.0, |(axis, taken)| axis.steps[taken - 1].saved)
}

/// The recipe at a place.
fn recipe(begin: &Recipe, axes: &[Axis], place: &Place) -> Recipe {
    let mut recipe = begin.clone();
    for (axis, taken) in axes.iter().zip(place) {
        let Some(step) = taken.checked_sub(1).and_then(|step| axis.steps.get(step)) else { continue };
        match axis.what {
            What::Site(site) => _ = recipe.left.insert(site, Left::Best(step.to)),
            What::Tokens => recipe.attention = Some(with_cut(recipe.attention.as_ref(), CUTS[step.to])),
            What::Bits(part) => *part(recipe.bits.get_or_insert_with(Bits::default)) = Some(step.to as u32),
        }
    }
    recipe
}

/// What a step further on an axis saves and changes.
fn further(axis: &Axis, taken: usize) -> Option<(f64, f64)> {
    let next = axis.steps.get(taken)?;
    let now = taken.checked_sub(1).map_or((0.0, 0.0), |step| (axis.steps[step].saved, axis.steps[step].change));
    Some((next.saved - now.0, (next.change - now.1).max(1e-9)))
}

/// The place that saves most within a total change: always the step that saves most for what it changes. Steps may be
/// skipped where only several together are worth it.
fn within(axes: &[Axis], total: f64) -> Place {
    let mut place = vec![0; axes.len()];
    let mut left = total;
    loop {
        let best = |number: usize| {
            let axis: &Axis = &axes[number];
            let from: usize = place[number];
            let now = from.checked_sub(1).map_or((0.0, 0.0), |step| (axis.steps[step].saved, axis.steps[step].change));
            let worth = move |to: usize| {
                let (saved, change) = (axis.steps[to].saved - now.0, (axis.steps[to].change - now.1).max(1e-9));
                (saved > 0.0 && change <= left).then_some((saved / change, number, to + 1, change))
            };
            (from..axis.steps.len()).filter_map(worth).max_by(|a, b| a.0.total_cmp(&b.0))
        };
        let Some((_, axis, to, change)) = (0..axes.len()).filter_map(best).max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return place;
        };
        place[axis] = to;
        left -= change;
    }
}

/// The largest total change whose combination is still within the budget, by halving.
fn combine(search: &mut Search<'_>, begin: &Recipe, axes: &[Axis]) -> Result<Place, Error> {
    (search.tell)(Event::Phase("combinations", HALVINGS));
    let changes = || axes.iter().flat_map(|axis| axis.steps.iter().map(|step| step.change)).filter(|c| c.is_finite());
    let (mut low, mut high) =
        (changes().fold(f64::INFINITY, f64::min).max(1e-6).ln(), changes().sum::<f64>().max(1e-5).ln());
    let mut best = vec![0; axes.len()];
    let mut seen: Vec<Place> = vec![best.clone()];
    for _ in 0..2 * HALVINGS {
        let middle = (low + high) / 2.0;
        let place = within(axes, middle.exp());
        if high - low < 0.05 || search.trials_left() == 0 || seen.len() > HALVINGS {
            break;
        }
        if place == best {
            low = middle;
            continue;
        }
        if seen.contains(&place) {
            high = middle;
            continue;
        }
        seen.push(place.clone());
        let candidate = recipe(begin, axes, &place);
        let tried = search.attempt("combination", &candidate, tokens(axes, &place))?;
        if good(search, &tried) {
            search.accept();
            (low, best) = (middle, place);
        } else {
            high = middle;
        }
    }
    Ok(best)
}

fn good(search: &Search<'_>, tried: &Tried) -> bool {
    let rows = !search.settings.most_rows || tried.verdict.not_worse > 0.5;
    rows && tried.verdict.within(search.settings.budget)
}

/// Takes further steps one by one, the most worthwhile first, as long as they are within the budget; for accuracy as long as
/// they make the loss smaller.
fn refine(search: &mut Search<'_>, begin: &Recipe, axes: &[Axis], mut place: Place) -> Result<(), Error> {
    let most = axes.len().min(search.trials_left());
    (search.tell)(Event::Phase("last steps", most));
    let mut least = search.judge.own().loss;
    let mut stuck = vec![false; axes.len()];
    while search.trials_left() > 0 {
        let worth = |number: usize| {
            let (saved, change) = further(&axes[number], place[number])?;
            let worth = match search.settings.focus {
                Focus::Accuracy => 1.0 / change,
                _ => saved / change,
            };
            (!stuck[number] && saved > 0.0).then_some((worth, number))
        };
        let Some((_, number)) = (0..axes.len()).filter_map(worth).max_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        let mut next = place.clone();
        next[number] += 1;
        let tried = search.attempt(&axes[number].name, &recipe(begin, axes, &next), tokens(axes, &next))?;
        let accepted = match search.settings.focus {
            Focus::Accuracy => tried.verdict.loss < least,
            _ => good(search, &tried),
        };
        if accepted {
            search.accept();
            least = least.min(tried.verdict.loss);
            place = next;
        } else {
            stuck[number] = true;
        }
    }
    Ok(())
}
