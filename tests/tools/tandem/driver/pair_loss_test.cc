#include "tools/tandem/driver/pair_loss.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "common/config/scalar.h"
#include "common/io/read_file.h"
#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

// What the trainer's formulas are compared with too: PyTorch's, in float64.
nlohmann::json ReadGolden() {
  const char* source = std::getenv("TANDEM_SOURCE");
  auto json = io::ReadJsonFile(std::string(source == nullptr ? "." : source) +
                               "/tests/services/trainer/algorithm/preference_golden.json");
  EXPECT_OK(json.status());
  return json.ok() ? (*json)["preference_loss"] : nlohmann::json::array();
}

TEST(PairLoss, OfEveryTypeIsThatOfPyTorch) {
  std::set<std::string> names;
  for (const nlohmann::json& golden : ReadGolden()) {
    const std::string name = golden["name"];
    names.insert(name);
    config::v1::DpoConfig config;
    config.set_beta(golden["beta"]);
    config.set_label_smoothing(golden["label_smoothing"]);
    for (int type = 1; type < config::v1::DpoLossType_ARRAYSIZE; ++type) {
      if (config::EnumValueName(*config::v1::DpoLossType_descriptor()->FindValueByNumber(type)) ==
          name) {
        config.set_loss_type(static_cast<config::v1::DpoLossType>(type));
      }
    }
    ASSERT_NE(config.loss_type(), config::v1::DPO_LOSS_TYPE_UNSPECIFIED) << name;
    const auto value = [&](const char* key, size_t i) { return golden[key][i].get<double>(); };
    for (size_t i = 0; i < golden["loss"].size(); ++i) {
      const double margin = config.beta() * ((value("chosen", i) - value("rejected", i)) -
                                             (value("ref_chosen", i) - value("ref_rejected", i)));
      EXPECT_NEAR(PairLoss(config, margin), value("loss", i),
                  1e-12 * std::max(1.0, value("loss", i)))
          << name << ", pair " << i;
    }
  }
  EXPECT_EQ(names.size(), config::v1::DpoLossType_ARRAYSIZE - 1) << "a type without golden values";
}

}  // namespace
}  // namespace tandem::driver
