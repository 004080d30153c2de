#include "tools/tandem/driver/pair_loss.h"

#include <algorithm>
#include <cmath>

namespace tandem::driver {
namespace {

// log(sigmoid(x)), exact for large |x|.
double LogSigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}

}  // namespace

bool IsLengthNormalized(config::v1::DpoLossType type) {
  return type == config::v1::DPO_LOSS_TYPE_SIGMOID_NORM || type == config::v1::DPO_LOSS_TYPE_IPO;
}

double PairLoss(const config::v1::DpoConfig& config, double margin) {
  const double e = config.label_smoothing();
  switch (config.loss_type()) {
    case config::v1::DPO_LOSS_TYPE_IPO: {
      const double distance = margin / config.beta() - 1 / (2 * config.beta());
      return distance * distance;
    }
    case config::v1::DPO_LOSS_TYPE_HINGE:
      return std::max(0.0, 1 - margin);
    case config::v1::DPO_LOSS_TYPE_ROBUST:
      return (-(1 - e) * LogSigmoid(margin) + e * LogSigmoid(-margin)) / (1 - 2 * e);
    default:  // sigmoid and sigmoid_norm
      return -(1 - e) * LogSigmoid(margin) - e * LogSigmoid(-margin);
  }
}

}  // namespace tandem::driver
