"""Recipes in YAML, scripts with arithmetic, lengths of training: what the planner gets, and what is not read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nvcoll
from nvcoll.cli.plan.given import configured, job_gpus
from nvcoll.training import configurations, plan

yaml = pytest.importorskip("yaml")

AXOLOTL = {
    **{"base_model": "Qwen/Qwen3-8B", "sequence_len": 8192, "micro_batch_size": 1, "gradient_accumulation_steps": 2},
    **{"dp_shard_size": 2, "context_parallel_size": 2, "tensor_parallel_size": 2, "fsdp_version": 2, "bf16": "auto"},
    **{"fsdp_config": {"offload_params": False, "reshard_after_forward": True, "state_dict_type": "FULL_STATE_DICT"}},
    **{"optimizer": "adamw_bnb_8bit", "adapter": "qlora", "lora_r": 16, "load_in_4bit": True, "tiled_mlp": True},
    **{"lora_target_modules": ["q_proj", "v_proj", "lm_head"]},
}
LLAMAFACTORY = {
    **{"model_name_or_path": "meta-llama/Meta-Llama-3-8B-Instruct", "finetuning_type": "lora", "lora_rank": 8},
    **{"cutoff_len": 2048, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "bf16": True},
    **{"quantization_bit": 4, "lora_target": "all"},
}
LLAMAFACTORY_V1 = {
    **{"model": "Qwen/Qwen3-0.6B", "train_dataset": "demo.yaml", "micro_batch_size": 4, "cutoff_len": 2048},
    **{"dist_config": {"name": "fsdp2"}, "optim_config": {"name": "muon"}},
}
ACCELERATE = {
    **{"distributed_type": "FSDP", "mixed_precision": "bf16", "num_machines": 1, "num_processes": 8},
    **{
        "fsdp_config": {
            "fsdp_activation_checkpointing": True,
            "fsdp_offload_params": True,
            "fsdp_reshard_after_forward": True,
        }
    },
    **{"parallelism_config": {"parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 2}},
}
ACCELERATE["parallelism_config"]["parallelism_config_tp_size"] = 2
AUTOMODEL = {
    **{"step_scheduler": {"global_batch_size": 512, "local_batch_size": 1}},
    **{"model": {"pretrained_model_name_or_path": "meta-llama/Llama-3.1-8B"}, "peft": {"dim": 8}},
    **{"distributed": {"strategy": "fsdp2", "tp_size": 2, "dp_size": "none", "activation_checkpointing": True}},
    **{"packed_sequence": {"packed_sequence_size": 4096}, "optimizer": {"_target_": "torch.optim.AdamW"}},
}
PRIMUS_ARGUMENTS = {
    **{"micro_batch_size": 4, "global_batch_size": 32, "seq_length": "${PRIMUS_SEQ_LENGTH:2048}", "fp8": "hybrid"},
    **{"use_torch_fsdp2": True, "use_distributed_optimizer": False, "recompute_granularity": "full", "lr": 1e-5},
    **{"recompute_method": "block", "recompute_num_layers": 80, "mtp_num_layers": 1},
}
PRIMUS = {"modules": {"pre_trainer": {"framework": "megatron", "model": "qwen2.5_72B.yaml"}}}
PRIMUS["modules"]["pre_trainer"]["overrides"] = PRIMUS_ARGUMENTS

DEEPSPEED = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}

RECIPES = [
    pytest.param(
        *(AXOLOTL, "Qwen/Qwen3-8B", "axolotl"),
        {"tp": 2, "cp": 2, "zero": 3, "sequence": 8192, "micro_batch": 1, "global_batch": 4, "dtype": "bf16"},
        {"lora": 16, "lora_targets": "q,v", "quantize": "nf4-dq", "optimizer": "adamw-8bit"},
        ["`tiled_mlp`", "adapters of `lm_head`"],
        id="axolotl",
    ),
    pytest.param(
        *(LLAMAFACTORY, "meta-llama/Meta-Llama-3-8B-Instruct", "fsdp2"),
        {"zero": 0, "sequence": 2048, "micro_batch": 1, "global_batch": 64, "recompute": "full", "dtype": "bf16"},
        {"lora": 8, "quantize": "nf4-dq"},
        [],
        id="llamafactory",
    ),
    pytest.param(
        *(LLAMAFACTORY_V1, "Qwen/Qwen3-0.6B", "fsdp2"),
        {"zero": 3, "sequence": 2048, "micro_batch": 4, "global_batch": 32},
        {"optimizer": "muon"},
        [],
        id="llamafactory-v1",
    ),
    pytest.param(
        *(ACCELERATE, None, "fsdp2"),
        {"tp": 2, "dp": 4, "zero": 3, "shard_ranks": 2, "recompute": "full", "dtype": "bf16"},
        {"offload": "parameters,optimizer"},
        [],
        id="accelerate",
    ),
    pytest.param(
        *(AUTOMODEL, "meta-llama/Llama-3.1-8B", "automodel"),
        {"tp": 2, "zero": 3, "global_batch": 512, "sequence": 4096, "recompute": "full", "dtype": "bf16"},
        {"lora": 8},
        [],
        id="automodel",
    ),
]


@pytest.mark.parametrize(("values", "model", "software", "layout", "trained", "named"), RECIPES)
def test_a_recipe_says_model_and_layout_and_names_what_is_not_read(values, model, software, layout, trained, named):
    found = configurations.from_text(yaml.safe_dump(values), machine_gpus=8 if model else None)
    assert (found.model, found.software) == (model, software)
    assert found.layout.items() >= (layout | trained).items()
    words = ("lora", "lora_targets", "dora", "quantize", "optimizer", "pure_bf16", "offload", "loss_chunks")
    assert {word: found.layout[word] for word in words if word in found.layout} == trained
    assert all(any(word in note for note in found.notes) for word in named)
    assert len(found.notes) == len(named)
    plan(**{"model": "llama3.1-8b", **found.words()}, on="hgx-h100")


def test_an_experiment_of_primus_has_arguments_of_megatron():
    found = configurations.from_text(yaml.safe_dump(PRIMUS), machine_gpus=8)
    assert found.model == "qwen2.5-72b"
    expected = {"zero": 3, "sequence": 2048, "micro_batch": 4, "global_batch": 32, "dtype": "fp8"}
    assert found.layout.items() >= expected.items()
    assert found.layout["recompute"]["gemm"] == 1.0
    assert (found.layout["mtp"], found.notes) == (1, [])


def test_files_of_deepspeed_that_a_recipe_names_are_read(tmp_path):
    values = LLAMAFACTORY | {"deepspeed": "ds/z3.json"}
    file = tmp_path / "sft.yaml"
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(nvcoll.InvalidArgument, match=r"ds/z3\.json of DeepSpeed, which is not there"):
        configurations.read(file)
    (tmp_path / "ds").mkdir()
    (tmp_path / "ds/z3.json").write_text(json.dumps(DEEPSPEED))
    found = configurations.read(file, gpus=8)
    assert (found.layout["zero"], found.layout["offload"], found.software) == (3, "optimizer", "deepspeed-zero")


@pytest.mark.parametrize(
    ("fields", "trained", "note"),
    [
        ({"optimizer": "came_pytorch"}, {}, "the optimizer came_pytorch is not priced"),
        ({"adapter": None}, {"optimizer": "adamw-8bit"}, "without adapters are not priced"),
        ({"unfrozen_parameters": ["lm_head"], "adapter": None}, {}, "frozen weights are not priced"),
        ({"adapter": "llama-adapter"}, {}, "the adapter llama-adapter is not priced"),
        ({"peft_use_dora": True}, {"dora": True}, "tiled_mlp"),
        ({"liger_fused_linear_cross_entropy": True}, {"loss_chunks": 16}, "the fused loss counts"),
        ({"activation_offloading": True}, {"offload": "activations"}, "tiled_mlp"),
    ],
)
def test_what_is_trained_has_the_words_of_a_plan_or_a_note(fields, trained, note):
    found = configurations.from_text(yaml.safe_dump(AXOLOTL | fields), gpus=8)
    assert found.layout.items() >= trained.items()
    assert any(note in one for one in found.notes)


def test_a_plain_copy_of_axolotl_trains_in_bf16():
    plain = {"base_model": "Qwen/Qwen3-8B", "micro_batch_size": 1, "bf16": True}
    assert configurations.from_text(yaml.safe_dump(plain), gpus=8).layout["pure_bf16"] is True
    assert "pure_bf16" not in configurations.from_text(yaml.safe_dump(plain | {"fsdp": ["full_shard"]}), gpus=8).layout


def test_the_machine_has_the_gpus_that_no_file_says_and_the_job_those_that_it_says(tmp_path):
    file = tmp_path / "sft.yaml"
    file.write_text(yaml.safe_dump(LLAMAFACTORY))
    machine = nvcoll.fabric("hgx-h100")
    assert configured([str(file)], [], [machine])[1]["global_batch"] == 64
    assert configured([str(file)], [2], [machine])[1]["global_batch"] == 16
    file.write_text(yaml.safe_dump(ACCELERATE | {"num_processes": 4}))
    _, read, _ = configured(["llama3-8b", str(file)], [], [machine])
    assert job_gpus(read, [machine]) == [4]


def test_a_model_that_is_not_shipped_is_refused_with_the_way_to_pass_one(tmp_path):
    file = tmp_path / "sft.yaml"
    file.write_text(yaml.safe_dump(AXOLOTL | {"base_model": "zai-org/GLM-9.9"}))
    with pytest.raises(nvcoll.InvalidArgument, match=r"nvcoll plan MODEL --config"):
        configured([str(file)], [8])
    assert configured(["llama3-8b", str(file)], [8])[0] == "llama3-8b"


SCRIPT = """
NNODES=2
GPUS=8
WORLD=$(($GPUS * NNODES))
SIZE="8B"
case "${SIZE}" in
    "70B" | "8B-wide")
        LAYERS=80
        ;;
    "8B") LAYERS=$(( (WORLD + 16) ))
        ;;
    *)
        LAYERS=1
        ;;
esac
torchrun --nnodes $NNODES --nproc_per_node $GPUS pretrain_gpt.py --num-layers $LAYERS --hidden-size 4096 --bf16 \\
    --num-attention-heads 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size $((WORLD/2*4-16%3)) \\
    --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B --optimizer muon --use-new-thing
"""


def test_arithmetic_and_case_of_a_script_are_computed():
    found = configurations.from_text(SCRIPT)
    assert (found.model["layers"], found.model["vocab"]) == (32, 128256)
    assert (found.layout["global_batch"], found.layout["dp"]) == (31, 16)
    assert "not read: `use-new-thing`" in found.notes
    assert found.layout["optimizer"] == "muon"


@pytest.mark.parametrize("text", ["1/0", "$MISSING*2", "9**9**9", "f(2)", "((((", "1 1"])
def test_arithmetic_without_a_result_is_refused_with_its_spelling(text):
    with pytest.raises(nvcoll.InvalidArgument, match="`micro-batch-size`"):
        configurations.from_text(SCRIPT.replace("--micro-batch-size 1", f"--micro-batch-size $(({text}))"))


def test_a_model_without_a_length_of_training_gets_a_usual_one():
    values = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 2}
    values |= {"intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 131072}
    found = configurations.from_text(json.dumps(values))
    assert found.model["sequence"] == 8192
    assert any("a usual length of training; the longest is 131072" in note for note in found.notes)


def test_an_unknown_architecture_is_refused_with_its_reason_and_the_nearest():
    values = {"model_type": "qwen4", "mamba_d_state": 16}
    with pytest.raises(nvcoll.InvalidArgument, match=r"`mamba_d_state` of layers that may be others.*qwen3"):
        configurations.from_text(json.dumps(values))


@given(values=st.sampled_from([AXOLOTL, LLAMAFACTORY, LLAMAFACTORY_V1, ACCELERATE, AUTOMODEL, PRIMUS]), data=st.data())
def test_a_recipe_with_a_random_field_is_refused_or_read(values, data):
    name = data.draw(st.sampled_from(sorted(values)))
    part = values[name]
    value = data.draw(st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.integers())))
    if isinstance(part, dict) and data.draw(st.booleans()):
        value = {**part, data.draw(st.sampled_from(sorted(part))): value}
    try:
        configurations.from_text(yaml.safe_dump({**values, name: value}), machine_gpus=8)
    except nvcoll.InvalidArgument as error:
        assert len(str(error)) < 3000


TORCHTITAN = """
from torchtitan.trainer import Trainer

def llama3_8b() -> Trainer.Config:
    "A job."
    spec = model_registry("8B", converters=[Float8LinearConverter.Config(fqns=["x"])], num_mtp_layers=1)
    return Trainer.Config(
        model_spec=spec,
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=2 * 8192, max_context_length=8192),
        parallelism=ParallelismConfig(tensor_parallel_degree=2),
        activation_checkpoint=FullAC.Config(),
    )

def mine() -> Trainer.Config:
    config = llama3_8b()
    assert config.model_spec is not None
    config.compile = CompileConfig(enable=True, enable_async_tensor_parallel=True)
    config.training.num_tokens_per_train_step = 64 * 8192
    config.odd.thing = -1
    if config.odd:
        config.training.max_context_length = 1
    return config

def other():
    return other()
"""


def test_a_job_of_torchtitan_in_python_is_read_and_not_run(tmp_path):
    with pytest.raises(nvcoll.InvalidArgument, match="install torchtitan, or pass a file"):
        configurations.read("no_torchtitan.models.llama3.config_registry:llama3_8b")
    folder = tmp_path / "llama3"
    folder.mkdir()
    file = folder / "config_registry.py"
    file.write_text(TORCHTITAN)
    with pytest.raises(nvcoll.InvalidArgument, match="pass a function of it"):
        configurations.read(file)
    found = configurations.read(f"{file}:mine", gpus=8)
    assert (found.model, found.software) == ("llama3-8b", "torchtitan-compile")
    expected = {"tp": 2, "dp": 4, "zero": 3, "sequence": 8192, "micro_batch": 2, "global_batch": 64, "dtype": "fp8"}
    assert found.layout.items() >= (expected | {"recompute": "full", "mtp": 1}).items()
    assert found.software_overrides == {"overlaps_tensor": True}
    assert found.notes == ["not read: line 20 of `mine`", "not read: `odd`"]
    assert configured([f"{file}:llama3_8b"], [8])[1]["global_batch"] == 8
    for name, reason in (("other", "returns no job"), ("none", "one of llama3_8b, mine, other")):
        with pytest.raises(nvcoll.InvalidArgument, match=reason):
            configurations.read(f"{file}:{name}", gpus=8)
    file.write_text("def a(:")
    with pytest.raises(nvcoll.InvalidArgument, match="no Python"):
        configurations.read(f"{file}:a")


@given(
    line=st.sampled_from(
        ["config.training = {}", "config.{} = 1", "return {}", "x = {} // 0", "config.model_spec = {}"]
    ),
    value=st.sampled_from(
        ["None", "1", "-x", "training", "2 ** 3", "mine()", "model_registry()", "[1, [2]]", "Trainer.Config"]
    ),
)
def test_a_job_in_python_with_a_random_line_is_refused_or_read(tmp_path_factory, line, value):
    file = tmp_path_factory.mktemp("llama3") / "config_registry.py"
    file.write_text(TORCHTITAN.replace("    config.odd.thing = -1", f"    {line.format(value)}"))
    try:
        configurations.read(f"{file}:mine", gpus=8)
    except nvcoll.InvalidArgument as error:
        assert len(str(error)) < 3000


def test_an_option_that_is_given_as_a_field_of_software_is_named():
    with pytest.raises(nvcoll.InvalidArgument, match=r"`zero` is no field of software, but an option: pass --zero"):
        plan("llama3-8b", on="hgx-h100", overrides={"zero": 3})


def test_a_job_of_torchtitan_says_its_optimizer_and_what_waits_in_ram():
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nenable_cpu_offload = true\n[optimizer]\nname = "{}"'
    found = configurations.from_text(text.format("Muon"), gpus=8)
    assert (found.layout["offload"], found.layout["optimizer"]) == ("parameters,optimizer", "muon")
    assert (
        "the optimizer Shampoo is not priced: it counts as AdamW"
        in configurations.from_text(text.format("Shampoo"), gpus=8).notes
    )


NEMO = {
    **{"micro_batch_size": 1, "global_batch_size": 128, "tensor_model_parallel_size": 4, "sequence_parallel": True},
    **{"encoder_seq_length": 4096, "max_position_embeddings": "${.encoder_seq_length}", "num_layers": 32},
    **{"pipeline_model_parallel_size": 1, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8},
    **{"ffn_hidden_size": 14336, "activation": "fast-swiglu", "share_embeddings_and_output_weights": False},
    **{"position_embedding_type": "rope", "activations_checkpoint_granularity": "selective", "drop_layers": []},
    **{"tokenizer": {"library": "huggingface", "type": "meta-llama/Meta-Llama-3-8B"}, "new_thing": 3},
    **{"optim": {"name": "distributed_fused_adam"}, "peft": {"peft_scheme": "lora"}, "bias": False},
}


def test_a_configuration_of_nemo_has_arguments_of_megatron_under_its_names():
    file = {"model": NEMO, "trainer": {"devices": 8, "num_nodes": 2, "precision": "bf16-mixed"}}
    found = configurations.from_text(yaml.safe_dump(file))
    assert found.software == "nemo"
    model = {"layers": 32, "hidden": 4096, "kv_heads": 8, "gated": True, "vocab": 128512, "tied": False}
    assert found.model.items() >= model.items()
    expected = {"tp": 4, "dp": 4, "zero": 1, "sequence": 4096, "recompute": "selective", "dtype": "bf16"}
    assert found.layout.items() >= expected.items()
    assert any("`peft_scheme` lora" in note for note in found.notes)
    assert "not read: `new-thing`" in found.notes


def test_a_stage_that_is_no_supervised_training_is_named():
    found = configurations.from_text(yaml.safe_dump(LLAMAFACTORY | {"stage": "dpo"}), gpus=8)
    assert "the stage dpo is not priced: it counts as supervised training" in found.notes


def test_a_job_of_accelerate_without_distribution_has_one_gpu():
    found = configurations.from_text(
        yaml.safe_dump({"distributed_type": "NO", "mixed_precision": "fp16"}), machine_gpus=8
    )
    assert found.layout["dp"] == 1


def test_a_script_gets_the_arguments_behind_its_name(tmp_path):
    file = tmp_path / "run.sh"
    file.write_text(SCRIPT.replace("NNODES=2", "NNODES=$1").replace("--micro-batch-size 1", "--micro-batch-size ${10}"))
    with pytest.raises(nvcoll.InvalidArgument, match=r"'\$\{10\}'.*pass the arguments of the script"):
        configurations.read(file, gpus=16)
    found = configurations.read(f"{file} 2 b c d e f g h i 4")
    assert (found.layout["micro_batch"], found.layout["dp"]) == (4, 16)
    assert configured([f"{file} 2 b c d e f g h i 4"], [])[0]["layers"] == 32


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("[ $A -eq 2 ]", True),
        ("[[ $A -gt 2 ]]", False),
        ("[ $A -ge 1 ] && [ $B != x ]", False),
        ("[ $A -ge 3 ] || [[ $B == x ]]", True),
        ("[ $A = 2 ] && [ $B = x ] || [ $B = y ]", True),
        ("[ -z ${UNSET} ]", True),
        ('[ -n "$A" ]', True),
        ('[[ -n "$UNSET" ]]', False),
    ],
)
def test_a_condition_of_texts_and_numbers_is_evaluated(condition, holds):
    text = f"A=2\nB=x\nif {condition}; then\n  MICRO=4\nelse\n  MICRO=1\nfi\n" + SCRIPT
    found = configurations.from_text(text.replace("--micro-batch-size 1", "--micro-batch-size $MICRO"))
    assert found.layout["micro_batch"] == (4 if holds else 1)
    assert not any("taken as true" in note for note in found.notes)


def test_a_pipeline_of_automodel_has_the_chunks_of_its_layers():
    pipeline = {"pp_schedule": "interleaved1f1b", "layers_per_stage": 4, "pp_microbatch_size": 1}
    values = AUTOMODEL | {"distributed": {"pp_size": 2, "pipeline": pipeline}}
    found = configurations.from_text(yaml.safe_dump(values), gpus=8)
    assert (found.layout["schedule"], found.layout["vp"], found.layout["zero"]) == ("interleaved", 4, 2)
    plan(**found.words(), on="hgx-h100")
    other = values | {"model": {"pretrained_model_name_or_path": "mine"}}
    found = configurations.from_text(yaml.safe_dump(other), gpus=8)
    assert found.layout["schedule"] == "1f1b"
    assert any("counts as 1f1b" in note for note in found.notes)


def test_a_recipe_of_automodel_without_a_length_gets_a_usual_one():
    model = {"pretrained_model_name_or_path": "mistralai/Mixtral-8x7B-v0.1"}
    found = configurations.from_text(yaml.safe_dump(AUTOMODEL | {"model": model, "packed_sequence": None}), gpus=8)
    assert found.layout["sequence"] == 8192
    assert "the length of sequences is not in the file: 8192 tokens are taken" in found.notes


TORCHTUNE = {
    **{"model": {"_component_": "torchtune.models.qwen3.qlora_qwen3_1_7b_instruct", "lora_rank": 8}},
    **{"tokenizer": {"_component_": "torchtune.models.qwen3.qwen3_tokenizer", "max_seq_len": 4096}, "batch_size": 2},
    **{"dtype": "bf16", "enable_activation_checkpointing": True, "gradient_accumulation_steps": 4, "compile": True},
    **{"optimizer": {"_component_": "bitsandbytes.optim.PagedAdamW8bit"}, "tensor_parallel_dim": 2, "quantizer": "q"},
    **{"loss": {"_component_": "torchtune.rlhf.loss.DPOLoss"}},
}
TORCHTUNE["model"] |= {"lora_attn_modules": ["q_proj", "v_proj"], "apply_lora_to_mlp": True}
SWIFT = r"""
n=4
# a comment
PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' \
NPROC_PER_NODE=$n \
swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --torch_dtype bfloat16 --lora_rank 16 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps $(expr 16 / $n) --target_modules q_proj v_proj \
    --max_length 2048 --deepspeed zero3_offload --attn_impl flash_attn --use_ray true
"""
VERL = """
torchrun --nnodes=1 --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer data.micro_batch_size_per_gpu=2 \\
    model.partial_pretrain=Qwen/Qwen3-8B +model.lora_rank=32 model.target_modules=all-linear data.train_batch_size=64 \\
    ulysses_sequence_parallel_size=2 model.fsdp_config.cpu_offload=True
"""
TRAINER = """
accelerate launch --num_processes 4 --config_file zero.yaml sft.py --use_peft \\
  --model_name_or_path meta-llama/Llama-3.1-8B --load_in_4bit --lora_r 32 --max_seq_length 4096 \\
  --per_device_train_batch_size 2 --gradient_checkpointing --bf16
"""
OPENRLHF = """
read -r -d '' commands <<EOF
openrlhf.cli.train_sft --max_len 512 --train_batch_size 128 --micro_train_batch_size 2 --zero_stage 2 --adam_offload \\
   --pretrain meta-llama/Meta-Llama-3-8B --param_dtype bf16 --gradient_checkpointing
EOF
deepspeed --module $commands
"""
MEGATRON_SWIFT = """
NPROC_PER_NODE=4 megatron sft --model Qwen/Qwen3-30B-A3B --expert_model_parallel_size 4 --micro_batch_size 1 \\
  --global_batch_size 16 --max_length 8192 --recompute_granularity full --sequence_parallel true --finetune true \\
  --tuner_type lora --lora_rank 4 --mtp_loss 1
"""
BRIDGE = """
torchrun --nproc_per_node=8 scripts/training/run_recipe.py --recipe qwen3_8b_sft_config train.global_batch_size=16 \\
  train.micro_batch_size=2 model.tensor_model_parallel_size=2 model.seq_length=4096 logger.log_interval=1
"""
NANOCHAT = """
RUN=d torchrun --standalone --nproc_per_node=8 -m scripts.base_train -- --depth=24 --device-batch-size=16 --fp8
torchrun --standalone --nproc_per_node=8 -m scripts.base_eval -- --device-batch-size=8
"""
COMMANDS = [
    pytest.param(
        *(yaml.safe_dump(TORCHTUNE), "qwen3-1.7b", "torchtitan-compile"),
        {"tp": 2, "zero": 3, "sequence": 4096, "micro_batch": 2, "global_batch": 32, "recompute": "full", "lora": 8}
        | {"lora_targets": "q,v,gate,up,down", "quantize": "nf4", "optimizer": "paged-adamw-8bit", "dtype": "bf16"},
        ["`quantizer`", "dpoloss"],
        id="torchtune",
    ),
    pytest.param(
        *(SWIFT, "Qwen/Qwen2.5-7B-Instruct", "deepspeed-zero"),
        {"zero": 3, "offload": "optimizer,parameters", "lora": 16, "lora_targets": "q,v", "global_batch": 16, "dp": 4},
        ["`use_ray`"],
        id="ms-swift",
    ),
    pytest.param(
        *(VERL, "Qwen/Qwen3-8B", "fsdp2"),
        {"cp": 2, "zero": 3, "lora": 32, "micro_batch": 2, "global_batch": 64, "dp": 2, "sequence": 1024},
        ["`model.fsdp_config.cpu_offload`"],
        id="verl",
    ),
    pytest.param(
        *(TRAINER, "meta-llama/Llama-3.1-8B", "hf-trainer"),
        {"zero": 0, "lora": 32, "quantize": "nf4", "sequence": 4096, "global_batch": 8, "dp": 4, "recompute": "full"},
        ["a file of accelerate is not read"],
        id="trainer",
    ),
    pytest.param(
        *(OPENRLHF, "meta-llama/Meta-Llama-3-8B", "deepspeed-zero"),
        {"zero": 2, "offload": "optimizer", "micro_batch": 2, "global_batch": 128, "sequence": 512, "dtype": "bf16"},
        [],
        id="openrlhf",
    ),
    pytest.param(
        *(MEGATRON_SWIFT, "qwen3-30b-a3b", "megatron-core"),
        {"ep": 4, "dp": 4, "zero": 1, "sequence": 8192, "global_batch": 16, "lora": 4, "recompute": "full"},
        ["`mtp-loss`"],
        id="megatron-swift",
    ),
    pytest.param(
        *(BRIDGE, "qwen3-8b", "megatron-bridge"),
        {"tp": 2, "dp": 4, "sequence": 4096, "micro_batch": 2, "global_batch": 16},
        ["qwen3_8b_sft_config itself", "no precision"],
        id="megatron-bridge",
    ),
    pytest.param(
        *(NANOCHAT, None, "nanochat"),
        {"dp": 8, "dtype": "fp8", "optimizer": "muon", "micro_batch": 16, "global_batch": 512, "sequence": 2048},
        ["value embeddings", "1048576 tokens"],
        id="nanochat",
    ),
]


@pytest.mark.parametrize(
    "command", [SWIFT.replace("lora_rank", "lora_dropout"), MEGATRON_SWIFT.replace("--lora_rank 4", "")]
)
@pytest.mark.parametrize(
    ("kind", "words", "note"),
    [
        ("full", {}, None),
        ("lora", {"lora": 8}, None),
        ("dora", {"lora": 8, "dora": True}, None),
        ("longlora", {}, "the adapter longlora is not priced: all weights train"),
    ],
)
def test_every_framework_has_one_reader_of_the_kind_of_fine_tuning(command, kind, words, note):
    found = configurations.from_text(command.replace("tuner_type lora", f"tuner_type {kind}"), machine_gpus=8)
    assert {word: found.layout.get(word) for word in ("lora", "dora") if word in found.layout} == words
    assert [one for one in found.notes if "adapter" in one] == ([note] if note else [])


@pytest.mark.parametrize(("text", "model", "software", "layout", "named"), COMMANDS)
def test_a_command_says_what_a_recipe_says(text, model, software, layout, named):
    found = configurations.from_text(text, machine_gpus=8)
    assert found.software == software
    assert found.model == model if model else found.model["hidden"] == 1536
    assert found.layout.items() >= layout.items()
    assert all(any(word in note for note in found.notes) for word in named)
    assert len(found.notes) == len(named)
    plan(**found.words(), on="hgx-h100", gpus=next(iter(job_gpus(found.layout, [nvcoll.fabric("hgx-h100")])), 8))


@given(words=st.lists(st.sampled_from([*SWIFT.split(), *VERL.split(), *NANOCHAT.split(), "'", "$(expr 1 / 0)", "--"])))
def test_a_command_of_random_words_is_refused_or_read(words):
    try:
        configurations.from_text(" ".join(["swift sft", *words]), machine_gpus=8)
    except nvcoll.InvalidArgument as error:
        assert len(str(error)) < 3000


@pytest.mark.parametrize(
    ("framework", "overrides", "software", "layout"),
    [
        (
            "megatron_bridge",
            {"micro_batch_size": 1, "seq_length": 8192, "peft": "lora"},
            "megatron-bridge",
            {"lora": 8},
        ),
        (
            *("torchtitan", {"training": {"local_batch_size": 2, "seq_len": 4096, "noise": 1}}, "torchtitan"),
            {"zero": 3, "global_batch": 16, "sequence": 4096},
        ),
    ],
)
def test_an_experiment_of_primus_has_other_frameworks(framework, overrides, software, layout):
    module = {"framework": framework, "model": "qwen3_8B.yaml", "overrides": overrides | {"odd": 1}}
    found = configurations.from_text(yaml.safe_dump({"modules": {"trainer": module}}), machine_gpus=8)
    assert (found.model, found.software) == ("qwen3-8b", software)
    assert found.layout.items() >= layout.items()
    assert any("odd" in note for note in found.notes)


def test_jobs_of_torchtitan_and_deepspeed_name_what_is_not_read():
    job = '[model]\nflavor = "8B"\n[training]\nnoise = 1\n[compile]\nenable = true\nbackend = "x"\n[odd]\na = 1'
    notes = configurations.from_text(job, machine_gpus=8).notes
    assert notes == ["not read: `training.noise`", "not read: `compile.backend`", "not read: `odd`"]
    found = configurations.from_text(json.dumps({"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}))
    assert "not read: `zero_optimization.zero_quantized_weights`" in found.notes


def test_layers_that_are_frozen_and_layers_of_multi_token_prediction_are_planned():
    freeze = LLAMAFACTORY | {"finetuning_type": "freeze", "freeze_trainable_layers": 8, "quantization_bit": None}
    found = configurations.from_text(yaml.safe_dump(freeze), gpus=8)
    assert (found.layout["frozen"], found.notes) == (24, [])
    assert plan(**found.words(), on="hgx-h100").seconds < plan(**found.words() | {"frozen": 1}, on="hgx-h100").seconds
    values = {"model_type": "qwen3", "num_nextn_predict_layers": 2, "hidden_size": 64, "num_hidden_layers": 2}
    more = {"num_attention_heads": 2, "vocab_size": 64, "max_position_embeddings": 64, "intermediate_size": 64}
    assert any("`--mtp 2` plans them" in note for note in configurations.from_text(json.dumps(values | more)).notes)
    plain, more = (plan("deepseek-v3", on="hgx-h100", gpus=8, sequence=4096, **words) for words in ({}, {"mtp": 1}))
    assert more.seconds > plain.seconds


def test_a_recipe_of_a_trainer_is_read_and_names_a_model_that_is_not_there(tmp_path):
    recipe = {"model_name_or_path": "/no/model", "per_device_train_batch_size": 2, "max_seq_length": 4096, "odd": 1}
    file = tmp_path / "sft.yaml"
    file.write_text(yaml.safe_dump(recipe))
    found = configurations.read(file, gpus=8)
    assert (found.layout["sequence"], found.layout["global_batch"]) == (4096, 16)
    assert "not read: `odd`" in found.notes
    for fields, expected in (
        ({"torch_dtype": "float16", "bf16": True}, {"dtype": "bf16"}),
        ({"torch_dtype": "bfloat16"}, {"dtype": "bf16", "pure_bf16": True}),
    ):
        assert configurations.from_text(yaml.safe_dump(recipe | fields), gpus=8).layout.items() >= expected.items()
    with pytest.raises(nvcoll.InvalidArgument, match="its model /no/model is not there"):
        configured([str(file)], [8])


def test_words_behind_a_redirection_are_no_values():
    line = "deepspeed --num_gpus 4 main.py --model_name_or_path facebook/opt-1.3b --zero_stage 2 --deepspeed &> log.txt"
    found = configurations.from_text(line, machine_gpus=8)
    assert (found.layout["zero"], found.layout["dp"], found.software) == (2, 4, "deepspeed-zero")
