// Whole runs on pictures, as a user starts them: supervised training, reinforcement learning whose
// trainer and rollouts agree to the last bit, and training on what such a run recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tests/fakes/fake_judge.h"
#include "tests/support/addition_data.h"
#include "tests/support/picture_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Arguments of a run into `folder`/run: 2 ranks, 2 replicas.
std::vector<std::string> PictureRun(const TempFolder& folder, const std::string& command,
                                    const std::vector<std::string>& sets) {
  const std::string model = testing::WritePictureModel(folder);
  const std::string train = testing::WritePictures(folder, "train", 24);
  const std::string test = testing::WritePictures(folder, "test", 8, /*first=*/24);
  const std::string config = folder.Write("run.yaml", R"(
model: {path: )" + model + R"(, dtype: float32, random_init: true}
data: {train_files: [)" + train + R"(], test_files: [)" + test +
                                                          R"(], train_batch_size: 4}
rollout: {n: 4, max_tokens: 3, replicas: 2, kv_cache_megabytes: 8}
trainer: {ranks: 2, total_steps: 3, collective_timeout_s: 30}
actor: {optim: {lr: 1e-3}}
reward: {name: prefix_match}
run_dir: )" + (folder / "run") + "\n");
  std::vector<std::string> args = {command, "--local", "--config", config};
  for (const std::string& set : sets) args.insert(args.end(), {"--set", set});
  return args;
}

std::vector<json> Metrics(const TempFolder& folder) {
  std::vector<json> steps = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  std::erase_if(steps, [](const json& line) { return line["training/global_step"] == 0; });
  return steps;
}

TEST(ImageRun, SftTeachesCompletionsAfterPictures) {
  for (const char* vision_lr : {"actor.vision_lr=0", "actor.vision_lr=1e-3"}) {
    const TempFolder folder;
    const ProgramResult result =
        RunProgram("tandem", PictureRun(folder, "sft",
                                        {vision_lr, "trainer.total_steps=12", "trainer.test_freq=6",
                                         "reward.name=none", "actor.optim.lr=3e-3"}));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<json> steps = Metrics(folder);
    ASSERT_EQ(steps.size(), 12U);
    EXPECT_LT(steps.back()["train/loss"], 0.8 * steps.front()["train/loss"].get<double>());
    EXPECT_TRUE(steps.back().contains("val/loss"));
    // What is written is a model that sees images.
    EXPECT_TRUE(std::filesystem::exists(folder / "run/model/preprocessor_config.json"));
    const std::string input = folder.Write(
        "score.jsonl",
        json{{"ids", {14, 18, 16, 16, 16, 16, 19, 13, 2, 14, 5, 2}}, {"images", {"pictures/1.png"}}}
                .dump() +
            "\n");
    const ProgramResult scored =
        RunProgram("tandem", {"score", "--model", folder / "run/model", "--side", "trainer",
                              "--input", input, "--dtype", "float32"});
    ASSERT_EQ(scored.exit_code, 0) << scored.err;
    EXPECT_EQ(JsonLines(scored.out).at(0)["logprobs"].size(), 11U);
  }
}

TEST(ImageRun, TrainerAndRolloutsAgreeToTheLastBit) {
  // Eight steps show pictures again, which a tower that learns then encodes otherwise.
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"model.dtype=bfloat16"},
        std::vector<std::string>{"actor.vision_lr=1e-3", "trainer.total_steps=8",
                                 "trainer.activation_checkpointing=full"}}) {
    const TempFolder folder;
    std::vector<std::string> all = sets;
    all.insert(all.end(), {"numerics=exact", "actor.entropy_coeff=0.05"});
    const ProgramResult result = RunProgram("tandem", PictureRun(folder, "train", all));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::vector<json> steps = Metrics(folder);
    ASSERT_GE(steps.size(), 3U);
    for (const json& step : steps) {
      EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0);
      EXPECT_GT(step["actor/grad_norm"], 0.0);
      // Both sides encode the step's pictures, of 16 patches each.
      for (const char* side : {"rollout", "perf"}) {
        const std::string name = std::string(side) + "/encoded_image";
        EXPECT_EQ(step[name + "_patches"], 16 * step[name + "s"].get<double>()) << side;
      }
      EXPECT_GT(step["perf/encoded_images"], 0.0);
      EXPECT_GT(step["timing_s/encode_images"], 0.0);
    }
    EXPECT_GT(steps.front()["rollout/encoded_images"], 0.0);
    EXPECT_GT(steps.front()["rollout/encode_images_s"], 0.0);
  }
}

// Four exact steps of a run whose tower learns, with the model that `write` puts into the folder in place
// of the pictures' own. Returns their metrics.
void RunExactSteps(const TempFolder& folder, const std::string& checkpointing,
                   const std::function<void()>& write, std::vector<json>& steps) {
  const std::vector<std::string> args =
      PictureRun(folder, "train",
                 {"numerics=exact", "actor.vision_lr=1e-3", "trainer.total_steps=4",
                  "actor.entropy_coeff=0.05", "trainer.activation_checkpointing=" + checkpointing});
  write();
  const ProgramResult result = RunProgram("tandem", args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  steps = Metrics(folder);
  ASSERT_EQ(steps.size(), 4U);
  for (const json& step : steps) {
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0);
    EXPECT_GT(step["actor/grad_norm"], 0.0);
  }
}

// Its tower adds to layers of the language model, which has experts.
TEST(ImageRun, TrainerAndRolloutsOfQwen3VlAgreeToTheLastBit) {
  const TempFolder folder;
  std::vector<json> steps;
  RunExactSteps(
      folder, "selective",
      [&] { folder.Write("model/config.json", testing::Qwen3PictureConfig().dump()); }, steps);
}

// Lines of placeholders have text between them.
TEST(ImageRun, TrainerAndRolloutsOfMistral3AgreeToTheLastBit) {
  const TempFolder folder;
  std::vector<json> steps;
  RunExactSteps(
      folder, "selective", [&] { testing::WriteMistral3PictureModel(folder); }, steps);
}

// A plain ViT, whose last layer nothing reads: it is in no update, though the tower learns.
TEST(ImageRun, TrainerAndRolloutsOfLlavaAgreeToTheLastBit) {
  const TempFolder folder;
  std::vector<json> steps;
  const auto write = [&] {
    const json size = {{"height", 16}, {"width", 16}};
    folder.Write("model/preprocessor_config.json",
                 json{{"image_processor_type", "CLIPImageProcessor"},
                      {"size", {{"shortest_edge", 16}}},
                      {"crop_size", size}}
                     .dump());
    folder.Write("model/config.json", R"({
      "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava",
      "image_token_index": 16,
      "text_config": {"model_type": "qwen2", "vocab_size": 22, "hidden_size": 32,
                      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "max_position_embeddings": 96, "bos_token_id": 1,
                      "eos_token_id": 2, "initializer_range": 0.1},
      "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32,
                        "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
                        "image_size": 16, "patch_size": 4}})");
  };
  RunExactSteps(folder, "full", write, steps);
  if (HasFatalFailure()) return;
  EXPECT_LT(steps.back()["update_weights/sent_bytes"], steps.back()["update_weights/bytes"]);
}

// Tokens of a picture see one another, in layers with a window and without.
TEST(ImageRun, TrainerAndRolloutsOfGemma3AgreeToTheLastBit) {
  const TempFolder folder;
  std::vector<json> steps;
  const auto write = [&] {
    const std::vector<std::pair<std::string, std::string>> renamed = {
        {"<|vision_start|><|image_pad|><|vision_end|>", "<start_of_image>"},
        {"<|vision_start|>", "<start_of_image>"},
        {"<|image_pad|>", "<image_soft_token>"},
        {"<|vision_end|>", "<end_of_image>"}};
    for (const char* name : {"model/tokenizer.json", "model/tokenizer_config.json"}) {
      folder.Write(name, absl::StrReplaceAll(ReadWhole(folder / name), renamed));
    }
    folder.Write("model/preprocessor_config.json",
                 json{{"image_processor_type", "Gemma3ImageProcessor"},
                      {"image_mean", {0.5, 0.5, 0.5}},
                      {"image_std", {0.5, 0.5, 0.5}},
                      {"size", {{"height", 16}, {"width", 16}}}}
                     .dump());
    folder.Write("model/config.json", R"({
      "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
      "image_token_index": 16, "mm_tokens_per_image": 4, "tie_word_embeddings": true,
      "text_config": {"model_type": "gemma3_text", "vocab_size": 22, "hidden_size": 32,
                      "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "head_dim": 8, "query_pre_attn_scalar": 8,
                      "max_position_embeddings": 96, "sliding_window": 3,
                      "sliding_window_pattern": 2, "bos_token_id": 1, "eos_token_id": 2,
                      "pad_token_id": 0, "initializer_range": 0.1},
      "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32,
                        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
                        "image_size": 16, "patch_size": 4, "vision_use_head": false}})");
  };
  RunExactSteps(folder, "selective", write, steps);
}

// A picture alone is tiles of a canvas whose margins are left out; among others it is one tile.
TEST(ImageRun, TrainerAndRolloutsOfLlavaOnevisionAgreeToTheLastBit) {
  const TempFolder folder;
  std::vector<json> steps;
  const auto write = [&] {
    const json pinpoints = {{16, 32}, {32, 32}};
    folder.Write("model/preprocessor_config.json",
                 json{{"image_processor_type", "LlavaOnevisionImageProcessor"},
                      {"size", {{"height", 16}, {"width", 16}}},
                      {"image_grid_pinpoints", pinpoints}}
                     .dump());
    json config = json::parse(R"({
      "architectures": ["LlavaOnevisionForConditionalGeneration"], "model_type": "llava_onevision",
      "image_token_index": 16, "video_token_index": 17, "vision_aspect_ratio": "anyres_max_1",
      "text_config": {"model_type": "qwen2", "vocab_size": 22, "hidden_size": 32,
                      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1,
                      "eos_token_id": 2, "initializer_range": 0.1},
      "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 32,
                        "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
                        "image_size": 16, "patch_size": 4, "vision_use_head": false}})");
    config["image_grid_pinpoints"] = pinpoints;
    folder.Write("model/config.json", config.dump());
    // Every other row shows another picture behind the text.
    std::string rows;
    int count = 0;
    for (json row : JsonLines(ReadWhole(folder / "train.jsonl"))) {
      if (++count % 2 == 0) {
        const json part = {{"type", "image"}, {"image", "pictures/1.png"}};
        row["prompt"][0]["content"].push_back(part);
        if (row.contains("images")) row["images"].push_back("pictures/1.png");
      }
      rows += row.dump() + "\n";
    }
    folder.Write("train.jsonl", rows);
  };
  RunExactSteps(folder, "full", write, steps);
}

// Tiles of an image have text between them, which is no token of its own.
TEST(ImageRun, TrainerAndRolloutsOfIdefics3AgreeToTheLastBit) {
  const TempFolder folder;
  std::vector<json> steps;
  RunExactSteps(
      folder, "selective", [&] { testing::WriteIdefics3PictureModel(folder); }, steps);
}

TEST(ImageRun, AFrozenTowerTravelsOnce) {
  const TempFolder folder;
  const ProgramResult result = RunProgram("tandem", PictureRun(folder, "train", {}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> all = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  const json& last = all.back();
  EXPECT_LT(last["update_weights/sent_bytes"], last["update_weights/bytes"]);
}

TEST(ImageRun, RecordsWhichPicturesSamplesShowAndTrainsOnThemAgain) {
  const TempFolder folder;
  const ProgramResult result = RunProgram("tandem", PictureRun(folder, "train", {}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> samples = JsonLines(ReadWhole(folder / "run/rollouts/1.jsonl"));
  ASSERT_EQ(samples.size(), 16U);
  for (const json& sample : samples) {
    ASSERT_EQ(sample["images"].size(), 1U);
    EXPECT_EQ(sample["images"][0]["sha256"].get<std::string>().size(), 64U);
  }

  const ProgramResult replayed =
      RunProgram("tandem", {"replay", "--local", "--config", folder / "run.yaml", "--set",
                            "run_dir=" + (folder / "again"), "--input", folder / "run/rollouts"});
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  const std::vector<json> before = Metrics(folder);
  const std::vector<json> after = JsonLines(ReadWhole(folder / "again/metrics.jsonl"));
  ASSERT_EQ(after.size(), before.size());
  EXPECT_EQ(after[0]["actor/loss"], before[0]["actor/loss"]);
  EXPECT_EQ(after[0]["actor/grad_norm"], before[0]["actor/grad_norm"]);
}

TEST(ImageRun, DpoLearnsFromPairsAfterPictures) {
  const TempFolder folder;
  std::vector<std::string> args =
      PictureRun(folder, "dpo", {"trainer.test_freq=3", "reward.name=none"});
  for (const char* name : {"train.jsonl", "test.jsonl"}) {
    std::string text;
    for (json row : JsonLines(ReadWhole(folder / name))) {
      row["chosen"] = row["answer"];
      row["rejected"] = "9";
      row.erase("answer");
      text += row.dump() + "\n";
    }
    folder.Write(name, text);
  }
  const ProgramResult result = RunProgram("tandem", args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> steps = Metrics(folder);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_TRUE(steps.back().contains("val/accuracy"));
  EXPECT_LT(steps.back()["train/loss"], steps.front()["train/loss"]);
}

TEST(ImageRun, IsPlannedWithoutStartingAnything) {
  const TempFolder folder;
  std::vector<std::string> args = PictureRun(folder, "train", {"actor.vision_lr=1e-3"});
  args.push_back("--dry-run");
  const ProgramResult result = RunProgram("tandem", args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "run/metrics.jsonl"));
}

TEST(ImageRun, NamesTheRowWhoseImagesDoNotFit) {
  const json user = {{"role", "user"}, {"content", json::array({{{"type", "image"}}})}};
  const std::vector<std::pair<json, std::string>> rows = {
      {{{"prompt", {user}}, {"answer", "1"}}, "an image without a source"},
      {{{"prompt", {user}}, {"images", {"none.png"}}, {"answer", "1"}}, "none.png"},
      {{{"prompt", {user}}, {"images", {"run.yaml"}}, {"answer", "1"}}, "run.yaml"},
      {{{"prompt", {user}}, {"images", {"pictures/0.png", "pictures/1.png"}}, {"answer", "1"}},
       "images[1]"},
      {{{"prompt", {14, 18, 16, 16, 19}}, {"images", {"pictures/0.png"}}, {"answer", "1"}},
       "placeholders"},
      {{{"prompt", {14, 18, 16, 16, 19}}, {"answer", "1"}}, "no image is left"},
  };
  for (const auto& [row, says] : rows) {
    const TempFolder folder;
    std::vector<std::string> args = PictureRun(folder, "train", {});
    folder.Write("train.jsonl", row.dump() + "\n");
    const ProgramResult result = RunProgram("tandem", args);
    EXPECT_NE(result.exit_code, 0) << row.dump();
    EXPECT_THAT(result.err, AllOf(HasSubstr("train.jsonl:1"), HasSubstr(says)));
  }
}

// Layers, sequences and optimizer state wherever they may be, and episodes of several turns.
TEST(ImageRun, TrainsOnAnyMeshAndInEpisodes) {
  const std::vector<std::vector<std::string>> settings = {
      {"trainer.offload=disk"},
      {"trainer.ulysses_sequence_parallel_size=2"},
      {"environment.name=calculator", "environment.max_turns=2", "environment.max_tokens=16"}};
  for (const std::vector<std::string>& sets : settings) {
    const TempFolder folder;
    std::vector<std::string> all = {"actor.vision_lr=1e-3", "actor.entropy_coeff=0.05"};
    all.insert(all.end(), sets.begin(), sets.end());
    const ProgramResult result = RunProgram("tandem", PictureRun(folder, "train", all));
    ASSERT_EQ(result.exit_code, 0) << sets.front() << ": " << result.err;
    const std::vector<json> steps = Metrics(folder);
    ASSERT_EQ(steps.size(), 3U) << sets.front();
    for (const json& step : steps) {
      EXPECT_GT(step["actor/grad_norm"], 0.0) << sets.front();
      EXPECT_LT(step["training/rollout_probs_diff_max"], 1e-3) << sets.front();
    }
  }
}

// A teacher with the policy's tower scores what the policy says of pictures.
TEST(ImageRun, AJudgeSeesThePictures) {
  testing::FakeJudge judge([](const testing::FakeJudge::Request& request) {
    return testing::FakeJudge::Completion(request.images.size() == 1 ? "Score: 5" : "none");
  });
  const TempFolder folder;
  const ProgramResult result = RunProgram(
      "tandem",
      PictureRun(folder, "train",
                 {"trainer.total_steps=2", "trainer.test_freq=0", "rollout.replicas=1",
                  "trainer.ranks=1", "reward.name=judge", "reward.judge.url=" + judge.url(),
                  "reward.judge.model=m", "reward.judge.images=true", "reward.judge.retries=0"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const json& step : Metrics(folder)) {
    EXPECT_EQ(step["critic/score/mean"], 0.5);
    EXPECT_EQ(step["reward/failed_judgements"], 0.0);
  }
}

TEST(ImageRun, ATeacherWithATowerSeesThePictures) {
  const TempFolder folder;
  const ProgramResult taught = RunProgram(
      "tandem", PictureRun(folder, "sft",
                           {"trainer.total_steps=2", "trainer.test_freq=0", "reward.name=none"}));
  ASSERT_EQ(taught.exit_code, 0) << taught.err;
  std::filesystem::rename(folder / "run/model", folder / "teacher");
  std::filesystem::remove_all(folder / "run");
  const ProgramResult result = RunProgram(
      "tandem", PictureRun(folder, "train",
                           {"trainer.total_steps=2", "trainer.test_freq=0", "rollout.replicas=1",
                            "trainer.ranks=1", "teacher.path=" + (folder / "teacher")}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const json& step : Metrics(folder)) {
    EXPECT_TRUE(step.contains("actor/teacher_kl"));
    EXPECT_NE(step["actor/teacher_kl"], 0.0);
  }
}

// A folder without a tower whose tokens are those of the picture model.
std::string WriteTextTeacher(const TempFolder& folder) {
  const json config = {{"architectures", {"Qwen2ForCausalLM"}},
                       {"model_type", "qwen2"},
                       {"eos_token_id", 2},
                       {"hidden_act", "silu"},
                       {"hidden_size", 32},
                       {"intermediate_size", 48},
                       {"max_position_embeddings", 96},
                       {"num_attention_heads", 4},
                       {"num_hidden_layers", 1},
                       {"num_key_value_heads", 2},
                       {"rms_norm_eps", 1e-6},
                       {"rope_theta", 10000},
                       {"vocab_size", 22}};
  folder.Write("text/config.json", config.dump());
  return folder / "text";
}

TEST(ImageRun, RefusesWhatSeesNoImagesBeforeAnythingStarts) {
  const TempFolder text;
  testing::FakeJudge judge([](const auto&) { return testing::FakeJudge::Completion("Score: 5"); });
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused = {
      {{"algorithm.adv_estimator=gae"}, "algorithm.adv_estimator"},
      {{"actor.vision_lr=1e-3", "actor.optim.name=muon"}, "muon"},
      {{"teacher.path=" + WriteTextTeacher(text)},
       "teacher.path: the teacher has no vision tower; there are images in data.train_files"},
      {{"teacher.endpoint=127.0.0.1:1"}, "teacher.endpoint: a teacher elsewhere is not known"},
      {{"reward.name=judge", "reward.judge.url=" + judge.url(), "reward.judge.model=m"},
       "reward.judge.images: the judge is not shown images"},
  };
  for (const auto& [sets, key] : refused) {
    const TempFolder folder;
    const ProgramResult result = RunProgram("tandem", PictureRun(folder, "train", sets));
    EXPECT_NE(result.exit_code, 0) << key;
    EXPECT_THAT(result.err, HasSubstr(key));
    EXPECT_FALSE(std::filesystem::exists(folder / "run/rollouts"));
  }
}

// Of images by URL: pictures come from public addresses, when they are asked for.
TEST(ImageRun, UrlsAreFetchedOnlyWhenAskedFor) {
  const json part = {{"type", "image_url"}, {"image_url", {{"url", "http://127.0.0.1:1/a.png"}}}};
  const json row = {{"prompt", {{{"role", "user"}, {"content", json::array({part})}}}},
                    {"answer", "1"}};
  for (const auto& [set, says] :
       {std::pair("data.allow_urls=false", "data.allow_urls"),
        std::pair("data.allow_urls=true", "expected an address of the public internet")}) {
    const TempFolder folder;
    std::vector<std::string> args = PictureRun(folder, "train", {set});
    folder.Write("train.jsonl", row.dump() + "\n");
    const ProgramResult result = RunProgram("tandem", args);
    EXPECT_NE(result.exit_code, 0) << set;
    EXPECT_THAT(result.err, AllOf(HasSubstr("train.jsonl:1"), HasSubstr("messages[0].content[0]"),
                                  HasSubstr(says)));
    EXPECT_FALSE(std::filesystem::exists(folder / "run/rollouts"));
  }
}

TEST(ImageRun, KeysOfImagesNeedAModelThatSeesThem) {
  for (const char* set : {"data.allow_urls=true", "reward.judge.images=true"}) {
    const TempFolder folder;
    std::vector<std::string> args = testing::TinyRun(folder, "train");
    args.insert(args.end(),
                {"--set", set, "--set", "reward.name=judge", "--set",
                 "reward.judge.url=http://127.0.0.1:1/v1", "--set", "reward.judge.model=m"});
    const ProgramResult result = RunProgram("tandem", args);
    EXPECT_EQ(result.exit_code, 2) << set;
    EXPECT_THAT(result.err, HasSubstr("the model has no vision tower"));
    EXPECT_THAT(result.err, HasSubstr(std::string(set).substr(0, std::string(set).find('='))));
  }
}

}  // namespace
}  // namespace tandem
