// A model made from config.json alone has the names of its family: those that transformers writes, or of
// experts those of the Hub.
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "common/io/model_folder.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/model/stored_layout.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vision_golden.h"

namespace tandem::model {
namespace {

// The tensor of all experts that the Hub has in place of one expert's, which transformers 5 writes.
std::string OnTheHub(const std::string& name) {
  static const std::regex gate_up(R"(experts\.\d+\.(gate|up)_proj\.weight)");
  static const std::regex down(R"(experts\.\d+\.down_proj\.weight)");
  return std::regex_replace(std::regex_replace(name, gate_up, "experts.gate_up_proj"), down,
                            "experts.down_proj");
}

class VisionNames : public ::testing::TestWithParam<std::string> {};

TEST_P(VisionNames, OfAModelWithoutAFolderAreThoseOfItsFamily) {
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder folder,
                       io::ModelFolder::Open(testing::VisionGolden(GetParam())));
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(folder.config().json, GetParam()));
  const ParameterTable table(spec);
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, StoredLayout::Create(table, /*folder=*/nullptr));
  std::set<std::string> ours, theirs;
  for (const StoredTensor& tensor : layout.tensors()) ours.insert(tensor.name);
  for (const std::string& name : folder.names()) theirs.insert(OnTheHub(name));
  EXPECT_EQ(ours, theirs);
}

INSTANTIATE_TEST_SUITE_P(Cases, VisionNames, ::testing::ValuesIn(testing::VisionGoldenCases()),
                         [](const auto& info) { return testing::VisionGoldenName(info.param); });

}  // namespace
}  // namespace tandem::model
