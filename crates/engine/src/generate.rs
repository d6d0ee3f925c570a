//! Generation: one token at a time, keys and values of earlier tokens kept.

use crate::Engine;
use crate::engine::result;
use crate::layout::Select;
use crate::profile::Clock;
use crate::random::Random;
use sparing_kernels::Buffer;
use sparing_model::{AttentionPosition, Batch, Error, HeadKind, HeadRows, Sequence};

/// How to continue a prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateOptions {
    /// The most tokens to add.
    pub max_new_tokens: usize,
    /// 0: always the likeliest token. Else logits are divided by this before sampling.
    pub temperature: f32,
    /// Sample among this many likeliest tokens; 0: among all.
    pub top_k: usize,
    /// Sample among the fewest tokens that together have this probability; 1: among all.
    pub top_p: f32,
    /// Same seed, same tokens.
    pub seed: u64,
    /// Generation ends at these tokens; they are not returned.
    pub stop: Vec<u32>,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        GenerateOptions { max_new_tokens: 64, temperature: 0.0, top_k: 0, top_p: 1.0, seed: 0, stop: Vec::new() }
    }
}

/// Keys and values of all tokens so far, `[tokens, heads * head_width]` each, per layer.
pub(crate) struct Cache {
    pub(crate) layers: Vec<(Buffer, Buffer)>,
}

impl Engine {
    /// Continues a prompt. `on_token` sees each new token as it comes and returns false to stop after it.
    ///
    /// Returns the new tokens. Ends also when the model's longest input is reached.
    pub fn generate(
        &self,
        prompt: &[u32],
        options: &GenerateOptions,
        on_token: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Vec<u32>, Error> {
        self.check_generates(prompt, options)?;
        let program = self.programs.rows.as_ref().unwrap_or(&self.programs.head);
        let limit = self.architecture.longest_input().unwrap_or(usize::MAX);
        let buffer = || Buffer::new(self.element);
        let mut cache = Cache { layers: self.architecture.layers.iter().map(|_| (buffer(), buffer())).collect() };
        let mut random = Random::new(options.seed);
        let mut candidates = Vec::new();
        let mut new = Vec::new();
        let mut step = Sequence { ids: prompt.to_vec(), types: Vec::new() };
        let mut past = 0;
        self.arenas.with(|arena| -> Result<(), Error> {
            while new.len() < options.max_new_tokens {
                let last = [step.ids.len() - 1];
                let sequences = std::iter::once((&step, Select::Rows(&last)));
                arena.layout.fill(sequences, self.global_tokens(), past);
                self.machine.run(program, arena, Some(&mut cache), &mut Clock::stopped());
                past += step.ids.len();
                let logits = result(program, arena, 0);
                // Such logits have no likeliest token.
                if let Some(x) = logits.iter().find(|x| x.is_nan() || **x == f32::INFINITY) {
                    let why = "the model's weights are damaged, or its numbers overflow in this precision";
                    return Err(Error::new(format!("score is {x} after {past} tokens: {why}")));
                }
                let token = choose(&logits, options, &mut random, &mut candidates);
                if options.stop.contains(&token) {
                    break;
                }
                new.push(token);
                if !on_token(token) || past >= limit {
                    break;
                }
                step.ids.clear();
                step.ids.push(token);
            }
            Ok(())
        })?;
        Ok(new)
    }

    fn check_generates(&self, prompt: &[u32], options: &GenerateOptions) -> Result<(), Error> {
        let head = &self.architecture.head;
        let able = |layer: &sparing_model::Layer| {
            layer.attention.causal
                && layer.attention.window.is_none()
                && layer.attention.position == AttentionPosition::None
        };
        if head.kind != HeadKind::CausalLm || head.rows != HeadRows::All || !self.architecture.layers.iter().all(able) {
            return Err(Error::new("this model does not generate text: it has no causal language model head"));
        }
        if !options.temperature.is_finite() || options.temperature < 0.0 {
            return Err(Error::new(format!("temperature is {}; it must be 0 or more", options.temperature)));
        }
        if options.top_p.is_nan() {
            return Err(Error::new("top_p is not a number; it must be between 0 and 1"));
        }
        let prompt = Sequence { ids: prompt.to_vec(), types: Vec::new() };
        Batch { sequences: vec![prompt], ..Batch::default() }.check(&self.architecture)
    }
}

/// The next token.
fn choose(logits: &[f32], options: &GenerateOptions, random: &mut Random, candidates: &mut Vec<(u32, f32)>) -> u32 {
    if options.temperature == 0.0 {
        let first = (0, f32::NEG_INFINITY);
        return logits.iter().enumerate().fold(first, |best, (i, x)| if *x > best.1 { (i, *x) } else { best }).0 as u32;
    }
    candidates.clear();
    candidates.extend(logits.iter().enumerate().map(|(i, x)| (i as u32, x / options.temperature)));
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if options.top_k > 0 && options.top_k < candidates.len() {
        candidates.select_nth_unstable_by(options.top_k - 1, order);
        candidates.truncate(options.top_k);
    }
    candidates.sort_unstable_by(order);
    let top = candidates[0].1;
    let mut sum = 0.0;
    for candidate in candidates.iter_mut() {
        candidate.1 = (candidate.1 - top).exp();
        sum += candidate.1;
    }
    if options.top_p < 1.0 {
        let (wanted, mut kept) = (options.top_p * sum, 0.0);
        let enough = candidates.iter().position(|candidate| {
            kept += candidate.1;
            kept >= wanted
        });
        candidates.truncate(enough.map_or(candidates.len(), |last| last + 1));
        sum = candidates.iter().map(|candidate| candidate.1).sum();
    }
    let mut left = random.unit_f32() * sum;
    for (token, weight) in candidates.iter() {
        left -= weight;
        if left < 0.0 {
            return *token;
        }
    }
    candidates[candidates.len() - 1].0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(options: &GenerateOptions, count: usize) -> Vec<u32> {
        let mut random = Random::new(options.seed);
        let mut candidates = Vec::new();
        (0..count).map(|_| choose(&[1.0, 3.0, 2.0, -4.0], options, &mut random, &mut candidates)).collect()
    }

    #[test]
    fn greedy_takes_the_likeliest() {
        assert_eq!(draw(&GenerateOptions::default(), 3), [1, 1, 1]);
    }

    #[test]
    fn sampling_follows_the_probabilities_and_the_seed() {
        let options = GenerateOptions { temperature: 1.0, seed: 7, ..GenerateOptions::default() };
        let drawn = draw(&options, 4000);
        let share = drawn.iter().filter(|t| **t == 1).count() as f32 / 4000.0;
        assert!((share - 0.665).abs() < 0.03, "{share}");
        assert_eq!(drawn, draw(&options, 4000));
    }

    #[test]
    fn top_k_and_top_p_leave_out_the_tail() {
        let options = GenerateOptions { temperature: 1.0, top_k: 2, ..GenerateOptions::default() };
        assert!(draw(&options, 500).iter().all(|t| [1, 2].contains(t)));
        let options = GenerateOptions { temperature: 1.0, top_p: 0.5, ..GenerateOptions::default() };
        assert!(draw(&options, 500).iter().all(|t| *t == 1));
        let options = GenerateOptions { temperature: 1.0, top_p: 0.0, ..GenerateOptions::default() };
        assert!(draw(&options, 50).iter().all(|t| *t == 1));
    }
}
