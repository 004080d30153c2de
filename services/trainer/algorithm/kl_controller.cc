#include "services/trainer/algorithm/kl_controller.h"

#include <algorithm>
#include <cmath>

namespace tandem::trainer {

void KlController::Update(double kl, int64_t num_samples) {
  if (!options_.adaptive || !std::isfinite(kl)) return;
  const double error = std::clamp(kl / options_.target - 1.0, -0.2, 0.2);
  coefficient_ *= 1.0 + error * static_cast<double>(num_samples) / options_.horizon;
}

}  // namespace tandem::trainer
