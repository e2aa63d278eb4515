//! The model of the GPUs that a text is about: what the text says of it, and what the caller says.

use crate::hardware::gpus::{self, Gpu};

/// What a text says of the model of its GPUs.
#[derive(Debug, Default)]
pub(super) struct ModelClues {
    /// The models that it names, each once.
    pub(super) named: Vec<&'static Gpu>,
    /// Names and identifiers that no row of the table has.
    pub(super) unknown: Vec<String>,
    /// The compute capability of NVIDIA's, as 90.
    pub(super) sm: Option<u32>,
    /// The instruction set of AMD's, as `gfx942`.
    pub(super) gfx: Option<String>,
    /// Whether a GPU has a coherent link to a processor.
    pub(super) has_c2c: bool,
    /// The most links that a GPU has to others.
    pub(super) most_links: u32,
    /// The links of a GPU to a switch, if there is one.
    pub(super) to_switch: Option<u32>,
}

impl ModelClues {
    /// Notes a name or identifier and the model that the table has for it.
    pub(super) fn name(&mut self, name: &str, model: Option<&'static Gpu>) {
        match model {
            Some(gpu) if !self.named.contains(&gpu) => self.named.push(gpu),
            None if !self.unknown.iter().any(|known| known == name) => self.unknown.push(name.to_owned()),
            _ => (),
        }
    }

    /// Notes the names of products in what `nvidia-smi`, `nvidia-smi -L`, `rocm-smi` and `amd-smi` print beside a matrix.
    pub(super) fn names_in<'a>(&mut self, lines: impl Iterator<Item = &'a str>) {
        for name in lines.filter_map(product_of) {
            let model = gpus::of_printed_name(name);
            if model.is_some() || BRANDS.iter().any(|brand| name.starts_with(brand)) {
                self.name(name, model);
            }
        }
    }

    /// Returns the model: the one that the text names, the one that the caller names, or the only one that fits.
    ///
    /// # Errors
    /// What contradicts what, or what the caller should pass.
    pub(super) fn settle(&self, given: Option<&'static Gpu>) -> Result<&'static Gpu, String> {
        let (gpu, by) = match (self.named.as_slice(), given) {
            ([one, other, ..], _) => {
                return Err(format!("it has {} and {}: pass GPUs of one model", one.title, other.title));
            }
            ([named], Some(given)) if given.is_variant_of(named) => (given, "gpu is"),
            ([named], Some(given)) if *named != given => {
                return Err(format!("gpu is {}, but it is about GPUs {}: leave `gpu` out", given.name, named.name));
            }
            ([named], _) => (*named, "its GPUs are named"),
            ([], Some(given)) => (given, "gpu is"),
            ([], None) => (self.only_fit()?, "it fits"),
        };
        match self.misfit(gpu) {
            Some(reason) => Err(format!("{by} {}, but {reason}", gpu.name)),
            None => Ok(gpu),
        }
    }

    /// Says what a text names that the table does not have, as a source of a machine; none if there is nothing.
    pub(super) fn substitution(&self, gpu: &Gpu) -> Option<String> {
        let is_other = self.named.is_empty() && !self.unknown.is_empty();
        is_other.then(|| format!("{} is taken for {}, as given", self.unknown.join(", "), gpu.title))
    }

    fn only_fit(&self) -> Result<&'static Gpu, String> {
        let mut fits: Vec<&'static Gpu> = Vec::new();
        let is_any = self.sm.is_some() || self.gfx.is_some() || self.has_c2c || self.to_switch.is_some();
        if is_any {
            let links_fit = |gpu: &Gpu| {
                self.most_links <= gpu.nvlinks
                    && self.to_switch.is_none_or(|links| links == gpu.nvlinks && !gpu.needs_bridge)
            };
            fits.extend(gpus::all().iter().filter(|gpu| gpu.variant_of.is_none() && self.misfit(gpu).is_none()));
            // Links can be down: a model that has other links is better than none.
            if fits.iter().any(|gpu| links_fit(gpu)) {
                fits.retain(|gpu| links_fit(gpu));
            }
        }
        // Without links it is no model whose NVLinks are soldered.
        let any = if self.most_links == 0 { "l40s" } else { "h100-sxm" };
        let asks = format!("pass gpu, as --gpu {}", fits.first().map_or(any, |gpu| &gpu.name));
        let names = || fits.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>().join(", ");
        match (self.unknown.first(), fits.as_slice()) {
            (None, [gpu]) => Ok(gpu),
            (_, []) if self.sm.is_some() || self.gfx.is_some() => {
                let what =
                    self.gfx.clone().unwrap_or_else(|| format!("GPUs of compute capability {}", self.capability()));
                Err(format!("no known GPU fits its {what}: describe the machine in TOML with the nearest model"))
            }
            (Some(name), []) => Err(format!("it is about {name}, which is no known GPU: {asks}, the nearest model")),
            (Some(name), _) => {
                Err(format!("it is about {name}, which is no known GPU: {asks}, the nearest of {}", names()))
            }
            (None, []) => Err(format!("it does not say which GPUs it is about: {asks}")),
            (None, _) => Err(format!("it does not say which GPUs it is about: {asks}; it fits {}", names())),
        }
    }

    fn capability(&self) -> String {
        self.sm.map_or_else(String::new, |sm| format!("{}.{}", sm / 10, sm % 10))
    }

    /// Says why the GPUs cannot be of a model.
    fn misfit(&self, gpu: &Gpu) -> Option<String> {
        if let Some(found) = self.gfx.as_deref().filter(|found| gpu.known_by.gfx.as_deref() != Some(found)) {
            return Some(format!("it says {found}, which a {} is not", gpu.title));
        }
        if self.sm.is_some_and(|sm| gpu.sm != Some(sm)) {
            return Some(format!("it says compute capability {}, which a {} has not", self.capability(), gpu.title));
        }
        let lacks_c2c = self.has_c2c && gpu.c2c.is_none();
        lacks_c2c.then(|| format!("it lists a coherent link to a processor, which a {} has not", gpu.title))
    }
}

/// How names of products begin that may not be in the table.
const BRANDS: [&str; 7] = ["NVIDIA ", "Tesla ", "GeForce ", "Quadro ", "TITAN ", "GRID ", "AMD "];

/// Returns the name of a product that a line has: `GPU 0: NAME (UUID: …)`, `|   0  NAME   On | …`, or `MARKET_NAME: NAME`.
fn product_of(line: &str) -> Option<&str> {
    let line = line.trim();
    let after_number = |text: &'static str| {
        let rest = line.strip_prefix(text)?.trim_start();
        let rest_of = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        (rest_of.len() < rest.len()).then_some(rest_of)
    };
    if let Some(name) = after_number("GPU ").and_then(|rest| rest.strip_prefix(": ")) {
        return Some(name.split(" (").next().unwrap_or(name).trim());
    }
    if let Some(cells) = after_number("|").filter(|rest| rest.starts_with(' ')) {
        let name = cells.trim_start();
        let end = ["  ", "...", "|"].iter().filter_map(|end| name.find(end)).min().unwrap_or(name.len());
        return Some(name[..end].trim_end().trim_end_matches(" Off").trim_end_matches(" On"));
    }
    let (key, value) = line.rsplit_once(':')?;
    let is_key = ["market_name", "card series", "device name"].iter().any(|known| {
        key.trim_end()
            .get(key.trim_end().len().saturating_sub(known.len())..)
            .is_some_and(|end| end.eq_ignore_ascii_case(known))
    });
    is_key.then(|| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_used_when_it_is_told_and_never_guessed() {
        let [base, variant] = ["a100-sxm", "a100-sxm-40gb"].map(|name| gpus::named(name).unwrap());
        let mut clues = ModelClues { sm: Some(80), to_switch: Some(12), ..ModelClues::default() };
        assert_eq!(clues.settle(None), Ok(base));
        clues.named.push(base);
        assert_eq!(clues.settle(None), Ok(base));
        assert_eq!(clues.settle(Some(variant)), Ok(variant));
    }

    #[test]
    fn products_are_found_in_what_tools_print() {
        for (line, name) in [
            ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)", "h100-sxm"),
            ("GPU 11: NVIDIA H200 NVL (UUID: GPU-1)", "h200-nvl"),
            ("GPU 0: Tesla V100-SXM2-16GB (UUID: GPU-1)", "v100-sxm"),
            ("GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-1)", "a100-pcie"),
            ("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-1)", "a100-sxm"),
            ("GPU 0: NVIDIA RTX PRO 6000 Blackwell Server Edition (UUID: GPU-1)", "rtx-pro-6000-server"),
            ("GPU 0: NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition (UUID: GPU-1)", "rtx-pro-6000"),
            ("GPU 0: NVIDIA GeForce RTX 4090 D (UUID: GPU-1)", "rtx4090d"),
            ("GPU 0: NVIDIA RTX 5000 Ada Generation (UUID: GPU-1)", "rtx5000-ada"),
            ("GPU 0: Quadro RTX 6000 (UUID: GPU-1)", "quadro-rtx-8000"),
            ("|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                    0 |", "a100-sxm"),
            ("|   7  NVIDIA B200                    On  |   00000000:07:00.0 Off |             0 |", "b200"),
            ("|   0  Tesla V100-SXM2-32GB On |", "v100-sxm"),
            ("GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X OAM", "mi300x"),
            ("        MARKET_NAME: AMD Instinct MI325X", "mi325x"),
        ] {
            let product = product_of(line).unwrap_or_default();
            let found = gpus::of_printed_name(product).map(|gpu| gpu.name.as_str());
            assert_eq!(found, Some(name), "{line}: {product}");
        }
        let mut clues = ModelClues::default();
        clues.names_in(
            ["|    0   N/A  N/A      1234      C   python3   500MiB |", "GPU0   X  NV18", "a: b"].into_iter(),
        );
        assert!(clues.named.is_empty() && clues.unknown.is_empty(), "{clues:?}");
        for stranger in ["NVIDIA H800 PCIe", "NVIDIA L4000", "NVIDIA T400"] {
            assert_eq!(gpus::of_printed_name(stranger), None, "{stranger}");
        }
    }
}
