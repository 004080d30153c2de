#include "tools/tandem/plan/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tools/tandem/plan/model_shape.h"

namespace tandem::plan {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kGib = int64_t{1} << 30;

TEST(Hardware, ReadsNameAcceleratorsAndHosts) {
  const absl::StatusOr<Hardware> h100 = ParseHardware("h100x8x4");
  ASSERT_TRUE(h100.ok()) << h100.status();
  EXPECT_TRUE(h100->is_gpu);
  EXPECT_EQ(h100->per_host, 8);
  EXPECT_EQ(h100->hosts, 4);
  EXPECT_EQ(h100->memory_bytes / kGib, 79);
  EXPECT_EQ(ParseHardware("A100x2")->total(), 2);
}

TEST(Hardware, ReadsTheMemoryOfAHostWithoutAccelerators) {
  const absl::StatusOr<Hardware> cpu = ParseHardware("cpu:24gib:2x1");
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_FALSE(cpu->is_gpu);
  EXPECT_EQ(cpu->memory_bytes, 24 * kGib);
  EXPECT_EQ(cpu->per_host, 2);
}

TEST(Hardware, AnswersAnUnknownNameWithTheNearest) {
  EXPECT_THAT(ParseHardware("h1000x8"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                 AllOf(HasSubstr("h1000"), HasSubstr("'h100'"))));
  EXPECT_THAT(ParseHardware("h100x0"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"0\"")));
  EXPECT_THAT(ParseHardware("cpu:much:2x1"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"much\"")));
}

TEST(Hardware, ReadsAFileAndNamesItsBadLine) {
  const TempFolder folder;
  const std::string keys =
      "device: cuda\nmemory_gib: 40\nreserved_gib: 2\ntflops: 100\nefficiency: 0.5\n"
      "intra_host_gb_s: 100\ninter_host_gb_s: 10\nhost_memory_gib: 512\nhost_link_gb_s: 25\n"
      "disk_gb_s: 3\nper_host: 4\nhosts: 2\n";
  const absl::StatusOr<Hardware> own = ParseHardware(folder.Write("own.yaml", keys));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->name, "own");
  EXPECT_EQ(own->total(), 8);
  EXPECT_EQ(own->memory_bytes, 40 * kGib);
  EXPECT_THAT(ParseHardware(folder.Write("typo.yaml", keys + "memory_gb: 3\n")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("typo.yaml:13"), HasSubstr("memory_gb"))));
  EXPECT_THAT(ParseHardware(folder.Write("short.yaml", "device: cuda\n")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("missing: ")));
  EXPECT_THAT(ParseHardware(folder.Write("long.yaml", std::string(2 << 20, ' '))),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("long.yaml")));
  std::filesystem::create_symlink("/dev/zero", folder / "endless.yaml");
  EXPECT_THAT(ParseHardware(folder / "endless.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("endless.yaml")));
}

TEST(ModelShape, FindsAShapeByThePathsLastPart) {
  const absl::StatusOr<model::ModelSpec> spec = FindModelShape("/models/Qwen2.5-7B-Instruct");
  ASSERT_TRUE(spec.ok()) << spec.status();
  // The model card's count.
  EXPECT_EQ(spec->num_parameters(), 7615616512);
  EXPECT_EQ(FindModelShape("llama-3.1-70b")->num_parameters(), 70553706496);
  EXPECT_EQ(FindModelShape("Qwen3-0.6B")->num_parameters(), 596049920);
}

TEST(ModelShape, AnswersAnUnknownNameWithTheNearest) {
  EXPECT_THAT(FindModelShape("/models/qwen2.5-8b"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("model.path"), HasSubstr("did you mean 'qwen2.5-"))));
}

}  // namespace
}  // namespace tandem::plan
