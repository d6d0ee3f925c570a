//! Where to compute, by name.

use burn::tensor::Device;
use sparing_model::Error;

/// The device of this name: `cpu`, and where the program was built with it `cuda` or `wgpu`.
pub fn device(name: &str) -> Result<Device, Error> {
    match name {
        "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        "cuda" => Ok(Device::cuda(burn::tensor::DeviceIndex::Default)),
        #[cfg(feature = "wgpu")]
        "wgpu" => Ok(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        "cuda" | "wgpu" => Err(Error::new(format!(
            "this program was built without {name}; build it with `cargo build --release --features train,{name}`"
        ))),
        other => Err(Error::new(format!("no device is called {other:?}; there are cpu, cuda and wgpu"))),
    }
}
