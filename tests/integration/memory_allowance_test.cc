// A model whose training state is twice what a rank may have of memory: it trains from disk, with
// the bits of a run that may have all it wants, and without that the run says what it lacked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "nlohmann/json.hpp"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;

// Masters, gradients and two moments in float32 of 39.6M parameters.
constexpr int64_t kStateBytes = int64_t{39'608'832} * 16;
// What a process may have of private memory: a trainer's code, threads and libraries, buffers and
// activations have to fit in it as well.
constexpr int64_t kAllowanceBytes = kStateBytes / 2;

// Every program started while this lives may have `bytes` of private memory.
class DataLimit {
 public:
  explicit DataLimit(int64_t bytes) {
    getrlimit(RLIMIT_DATA, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(bytes);
    setrlimit(RLIMIT_DATA, &limit);
  }
  ~DataLimit() { setrlimit(RLIMIT_DATA, &before_); }
  DataLimit(const DataLimit&) = delete;

 private:
  rlimit before_{};
};

std::string WriteModel(const TempFolder& folder) {
  const nlohmann::json config = {{"architectures", {"Qwen2ForCausalLM"}},
                                 {"model_type", "qwen2"},
                                 {"hidden_size", 512},
                                 {"intermediate_size", 1408},
                                 {"num_hidden_layers", 12},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 4},
                                 {"vocab_size", 4096},
                                 {"max_position_embeddings", 128},
                                 {"rms_norm_eps", 1e-6},
                                 {"rope_theta", 10000.0},
                                 {"hidden_act", "silu"},
                                 {"tie_word_embeddings", false},
                                 {"initializer_range", 0.02},
                                 {"eos_token_id", 0},
                                 {"torch_dtype", "float32"}};
  folder.Write("model/config.json", config.dump());
  return folder / "model";
}

ProgramResult Bench(const std::string& model, const std::string& offload_dir,
                    const std::string& offload) {
  return RunProgram("tandem", {"bench",
                               "train",
                               "--model",
                               model,
                               "--ranks",
                               "1",
                               "--batch",
                               "1",
                               "--sequence-length",
                               "32",
                               "--steps",
                               "2",
                               "--dtype",
                               "float32",
                               "--set",
                               "model.random_init=true",
                               "--set",
                               "trainer.offload=" + offload,
                               "--set",
                               "trainer.offload_dir='" + offload_dir + "'"});
}

nlohmann::json Line(const ProgramResult& result) {
  return nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

TEST(MemoryAllowance, TwiceOfItTrainsFromDiskWithTheBitsOfMemory) {
  const TempFolder folder;
  const std::string model = WriteModel(folder);
  const std::string offload_dir = folder / "offload";
  const ProgramResult free = Bench(model, offload_dir, "none");
  ASSERT_EQ(free.exit_code, 0) << free.err;
  const nlohmann::json expected = Line(free);
  EXPECT_EQ(expected["rank_memory"][0]["optimizer_bytes"], kStateBytes / 2);

  const DataLimit limit(kAllowanceBytes);
  const ProgramResult in_memory = Bench(model, offload_dir, "none");
  const ProgramResult on_disk = Bench(model, offload_dir, "disk");

  EXPECT_EQ(in_memory.exit_code, 1);
  EXPECT_THAT(in_memory.err, HasSubstr(std::to_string(kAllowanceBytes)));
  EXPECT_THAT(in_memory.err, HasSubstr("RLIMIT_DATA"));
  EXPECT_THAT(in_memory.err, HasSubstr("offload=disk"));
  ASSERT_EQ(on_disk.exit_code, 0) << on_disk.err;
  const nlohmann::json actual = Line(on_disk);
  EXPECT_EQ(actual["losses"], expected["losses"]);
  EXPECT_EQ(actual["grad_norms"], expected["grad_norms"]);
  EXPECT_EQ(actual["rank_memory"][0]["offloaded_bytes"], kStateBytes);
  EXPECT_TRUE(std::filesystem::is_empty(offload_dir));
}

}  // namespace
}  // namespace tandem
