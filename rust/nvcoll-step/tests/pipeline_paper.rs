//! Bubbles against the bubbles of Qi et al. 2024 (arXiv 2401.10241): table 5 from the times of table 9 and the shapes of table 3.

use nvcoll_step::pipeline::{Chunk, Pipeline, Schedule};

/// Stages, chunks of interleaving (one layer each), micro-batches; ms of F, B, W and a send; width, heads; bubbles of 1F1B, interleaved,
/// ZB-1p and ZB-2p.
type Row = (usize, usize, u32, [f64; 4], [f64; 2], [f64; 4]);

const ROWS: [Row; 12] = [
    (8, 3, 24, [18.522, 18.086, 9.337, 0.601], [2304.0, 24.0], [0.2431, 0.1055, 0.1585, 0.0433]),
    (8, 3, 32, [18.513, 18.086, 9.331, 0.626], [2304.0, 24.0], [0.1985, 0.0818, 0.1242, 0.0039]),
    (8, 3, 64, [18.546, 18.097, 9.321, 0.762], [2304.0, 24.0], [0.1240, 0.0443, 0.0674, 0.0026]),
    (8, 4, 24, [29.718, 29.444, 19.927, 0.527], [4096.0, 32.0], [0.2347, 0.0808, 0.1323, 0.0029]),
    (8, 4, 32, [29.802, 29.428, 19.530, 0.577], [4096.0, 32.0], [0.1898, 0.0628, 0.1045, 0.0022]),
    (8, 4, 64, [29.935, 29.621, 19.388, 0.535], [4096.0, 32.0], [0.1091, 0.0320, 0.0554, 0.0010]),
    (16, 3, 48, [11.347, 11.248, 8.132, 0.377], [5120.0, 40.0], [0.2552, 0.1104, 0.1397, 0.0066]),
    (16, 3, 64, [11.307, 11.254, 8.101, 0.379], [5120.0, 40.0], [0.2082, 0.0852, 0.1088, 0.0054]),
    (16, 3, 128, [11.325, 11.308, 8.109, 0.378], [5120.0, 40.0], [0.1251, 0.0445, 0.0576, 0.0028]),
    (32, 2, 96, [10.419, 10.207, 7.715, 0.408], [6144.0, 48.0], [0.2646, 0.1493, 0.1421, 0.0038]),
    (32, 2, 128, [10.408, 10.204, 7.703, 0.408], [6144.0, 48.0], [0.2168, 0.1164, 0.1106, 0.0029]),
    (32, 2, 256, [10.402, 10.248, 7.698, 0.460], [6144.0, 48.0], [0.1352, 0.0624, 0.0594, 0.0018]),
];

fn bubble(row: &Row, schedule: Schedule) -> f64 {
    let (stages, chunks, micro_batches, [forward, backward, weight, send], [hidden, heads], _) = *row;
    let chunks = if schedule == Schedule::Interleaved { chunks } else { 1 };
    let part = 1e-3 / chunks as f64;
    let one = Chunk { forward: forward * part, backward: backward * part, weight: weight * part };
    let scores = 5.0 * heads * 1024.0;
    let pipeline = Pipeline {
        kept: 32.0 * hidden / (34.0 * hidden + scores),
        ..Pipeline::new(schedule, vec![vec![one; chunks]; stages], micro_batches, send * 1e-3)
    };
    pipeline.check().unwrap();
    let step = pipeline.run().step;
    assert!((pipeline.closed_form() / step - 1.0).abs() < 0.007);
    1.0 - f64::from(micro_batches) * (forward + backward + weight) * 1e-3 / step
}

#[test]
fn one_f_one_b_and_zero_bubble_1p_have_the_papers_bubbles_in_all_digits() {
    for row in &ROWS {
        assert!((bubble(row, Schedule::OneFOneB) - row.5[0]).abs() < 6e-5);
        assert!((bubble(row, Schedule::ZeroBubble1p) - row.5[2]).abs() < 6e-5);
    }
}

/// The paper's own order of interleaving has p sends less on its critical path.
#[test]
fn interleaved_has_the_papers_bubbles_but_for_one_round_of_sends() {
    for row in &ROWS {
        let (stages, micro_batches, [forward, backward, weight, send]) = (row.0, row.2, row.3);
        let busy = f64::from(micro_batches) * (forward + backward + weight);
        let step = busy / (1.0 - row.5[1]) + stages as f64 * send;
        assert!((bubble(row, Schedule::Interleaved) - (1.0 - busy / step)).abs() < 1.5e-4);
    }
}

#[test]
fn zero_bubble_2p_is_as_good_as_the_papers_search() {
    let difference = |row: &Row| bubble(row, Schedule::ZeroBubble2p) - row.5[3];
    assert!(ROWS.iter().all(|row| difference(row) < 0.0014));
    assert_eq!(ROWS.iter().filter(|row| difference(row) < 6e-5).count(), 10);
}

/// Table 2 of DeepSeek-V3 (arXiv 2412.19437), where a backward pass B has the gradients of weights W, and nothing of F and B overlaps.
#[test]
fn dualpipe_has_the_bubble_of_its_table() {
    let (forward, backward, weight) = (10e-3, 9e-3, 8e-3);
    let chunk = Chunk { forward, backward, weight };
    let both = backward + weight;
    for stages in [2, 4, 8, 16] {
        let pipeline = Pipeline::new(Schedule::DualPipe, vec![vec![chunk; 2]; stages], 2 * stages as u32, 0.0);
        pipeline.check().unwrap();
        let busy = 4.0 * stages as f64 * (forward + both);
        let bubble = (stages as f64 / 2.0 - 1.0) * (forward + both + both - 3.0 * weight);
        assert!((pipeline.exact() - busy - bubble).abs() < 1e-9);
    }
    let uneven = Pipeline::new(Schedule::DualPipe, vec![vec![chunk; 2]; 3], 8, 0.0);
    assert!(uneven.check().unwrap_err().to_string().contains("even number of stages"));
}
