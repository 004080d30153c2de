// Normalizes the advantages of a batch to mean 0 and variance 1 (verl's masked_whiten).
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_WHITENING_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_WHITENING_H_

#include <vector>

namespace tandem::trainer {

// `values`: for each sequence, one number per trained-on token. Subtracts the mean over all tokens
// and divides by sqrt(variance + 1e-8), with the unbiased variance. A single token becomes 0.
void Whiten(std::vector<std::vector<double>>& values);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_WHITENING_H_
