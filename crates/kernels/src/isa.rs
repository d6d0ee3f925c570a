//! Which instruction set the kernels use.

use std::sync::OnceLock;

/// An instruction set with kernels of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust; runs everywhere.
    Portable,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Isa {
    /// The name that `SPARING_ISA` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether this machine can run it.
    pub fn available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("avx2")
            }
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            _ => false,
        }
    }

    /// Every instruction set this machine can run, best first.
    pub fn all_available() -> impl Iterator<Item = Isa> {
        [Isa::Avx512, Isa::Avx2, Isa::Portable].into_iter().filter(|isa| isa.available())
    }
}

/// The best available instruction set, or the one that `SPARING_ISA` forces.
///
/// An unknown or unavailable name is an error the caller should show; kernels that are called all the same
/// use the best available one.
pub fn choose() -> Result<Isa, String> {
    let best = Isa::all_available().next().unwrap_or(Isa::Portable);
    let Ok(wanted) = std::env::var("SPARING_ISA") else { return Ok(best) };
    let found = [Isa::Portable, Isa::Avx2, Isa::Avx512].into_iter().find(|isa| isa.name() == wanted);
    match found {
        Some(isa) if isa.available() => Ok(isa),
        Some(_) => Err(format!("SPARING_ISA={wanted}: this machine does not have it; unset it or use {}", best.name())),
        None => Err(format!("SPARING_ISA={wanted}: unknown; use portable, avx2 or avx512")),
    }
}

/// The instruction set in use, decided once.
pub fn active() -> Isa {
    static ACTIVE: OnceLock<Isa> = OnceLock::new();
    *ACTIVE.get_or_init(|| choose().unwrap_or_else(|_| Isa::all_available().next().unwrap_or(Isa::Portable)))
}

/// Whether bf16 products run on bf16 instructions under this instruction set.
pub fn has_bf16(isa: Isa) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return isa == Isa::Avx512 && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = isa;
        false
    }
}
