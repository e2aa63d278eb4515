//! Fabrics from what real machines print. **A format is one file and one line here.**

mod nvidia_smi;
