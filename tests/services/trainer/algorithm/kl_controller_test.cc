#include "services/trainer/algorithm/kl_controller.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::trainer {
namespace {

TEST(KlController, StaysWhereItIsFixed) {
  KlController controller({.adaptive = false, .coefficient = 0.2});
  controller.Update(10.0, 1000);
  EXPECT_EQ(controller.coefficient(), 0.2);
}

TEST(KlController, FollowsTheErrorUpToAFifth) {
  KlController controller({.adaptive = true, .coefficient = 0.2, .horizon = 1000, .target = 0.1});
  controller.Update(0.11, 100);  // an error of a tenth over a tenth of the horizon
  EXPECT_NEAR(controller.coefficient(), 0.2 * 1.01, 1e-12);
  controller.set_coefficient(1.0);
  controller.Update(50.0, 1000);
  EXPECT_NEAR(controller.coefficient(), 1.2, 1e-12);
  controller.Update(0.0, 500);
  EXPECT_NEAR(controller.coefficient(), 1.2 * 0.9, 1e-12);
}

TEST(KlController, IgnoresADivergenceThatIsNotFinite) {
  KlController controller({.adaptive = true, .coefficient = 0.2});
  controller.Update(NAN, 1000);
  EXPECT_EQ(controller.coefficient(), 0.2);
}

}  // namespace
}  // namespace tandem::trainer
