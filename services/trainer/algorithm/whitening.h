// Advantages of a batch brought to mean 0 and variance 1 (verl's masked_whiten).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_WHITENING_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_WHITENING_H_

#include <vector>

namespace tandem::trainer {

// One entry for each sequence, with one number for each of its trained-on tokens. Subtracts the
// mean over all tokens and divides by sqrt(variance + 1e-8), the variance unbiased. A single token
// becomes 0.
void Whiten(std::vector<std::vector<double>>& values);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_WHITENING_H_
