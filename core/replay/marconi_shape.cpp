#include "core/replay/marconi_shape.h"

namespace hyb {

ReplayShape marconi_shape(const MarconiModel& model, double flops_per_second) {
  const std::int64_t d = model.width, n = model.state_dim;
  const std::int64_t ssm = model.ssm, attention = model.attention, mlp = model.mlp;
  const double width = model.width, state_dim = model.state_dim;
  const std::int64_t conv_bytes = ssm * (2 * d + 2 * n) * 8;

  ReplayShape shape;
  shape.name = "marconi-7b";
  shape.kv_bytes_per_token = attention * 4 * d;
  shape.state_bytes = ssm * 2 * d * n + conv_bytes;
  shape.state_bytes_int8 = ssm * (d * n + 2 * d) + conv_bytes;
  shape.conv_bytes = conv_bytes;
  shape.attention_layers = model.attention;
  shape.recurrent_layers = model.ssm;
  shape.flops.linear = model.attention * 8 * width * width + model.mlp * 16 * width * width +
                       model.ssm * (12 * width * width + 16 * width * state_dim + 10 * width);
  shape.flops.square = model.attention * 4 * width;
  shape.seconds = {shape.flops.linear / flops_per_second, shape.flops.square / flops_per_second};
  // A transformer layer has 12 d^2 parameters (attention 4, mlp 8), an ssm layer 6 d^2.
  const std::int64_t transformer_layers = (6 * ssm + 4 * attention + 8 * mlp) / 12;
  shape.transformer_kv_bytes_per_token = transformer_layers * 4 * d;
  return shape;
}

}  // namespace hyb
