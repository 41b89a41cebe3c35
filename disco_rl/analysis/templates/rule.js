// The meta-network and what it reads, for one trajectory: the functions of
// disco_rl/maths/value_targets.py, networks/meta_features.py and
// networks/meta_network.py with B = 1. Vectors are arrays of numbers; matrices
// are {data, columns}, row by row.
'use strict';

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const relu = (x) => Math.max(0, x);
const sum = (x) => x.reduce((total, value) => total + value, 0);
const mean = (x) => sum(x) / x.length;
const dot = (x, y) => x.reduce((total, value, i) => total + value * y[i], 0);
const signLog = (x) => Math.sign(x) * Math.log1p(Math.abs(x));

function softmax(logits) {
  const largest = Math.max(...logits);
  const weights = logits.map((x) => Math.exp(x - largest));
  const total = sum(weights);
  return weights.map((x) => x / total);
}

// x W + b.
function linear(x, w, b) {
  const { data, columns } = w, result = Float64Array.from(b.data);
  if (x.length * columns !== data.length) {
    throw new Error(`a layer of ${data.length / columns} inputs gets ${x.length}`);
  }
  for (let i = 0; i < x.length; i++) {
    const scale = x[i], start = i * columns;
    if (scale === 0) continue;
    for (let j = 0; j < columns; j++) result[j] += scale * data[start + j];
  }
  return Array.from(result);
}

class Rule {
  // weights: name of the npz file -> {shape, data}; settings: see explorer.py.
  constructor(weights, settings) {
    this.settings = settings;
    this.weights = {};
    for (const [name, { shape, data }] of Object.entries(weights)) {
      this.weights[name] = { data, columns: shape[shape.length - 1] };
    }
    this.hasPredictions = 'lstm/linear_2/w' in this.weights;
    this.hasMetaRnn = 'lstm/linear/w' in this.weights;
    this.predictionSize = this.hasPredictions
      ? this.weights['lstm/linear_2/w'].columns : 0;
  }

  layer(module, x) {
    return linear(x, this.weights[`${module}/w`], this.weights[`${module}/b`]);
  }

  initialState() {
    const gate = this.weights['lstm/linear/w'];
    const size = gate ? gate.data.length / gate.columns : 0;
    const zeros = () => new Array(size).fill(0);
    return {
      hidden: zeros(), cell: zeros(),
      moments: { first: 0, second: 0, decayProduct: 1 },
    };
  }

  // Gates of an LSTM in Haiku's order: input, cell, forget, output.
  lstmStep(module, x, state) {
    const gates = this.layer(`${module}/linear`, x.concat(state.hidden));
    const size = state.hidden.length;
    const cell = state.cell.map((c, i) =>
      sigmoid(gates[2 * size + i] + 1) * c
      + sigmoid(gates[i]) * Math.tanh(gates[size + i]));
    const hidden = cell.map((c, i) =>
      sigmoid(gates[3 * size + i]) * Math.tanh(c));
    return { hidden, cell };
  }

  // E_y or E_z of softmax(logits): one number.
  embed(module, logits) {
    let x = softmax(logits);
    for (let i = 0; `${module}/~/linear_${i}/w` in this.weights; i++) {
      x = this.layer(`${module}/~/linear_${i}`, i ? x.map(relu) : x);
    }
    return x[0];
  }

  // Blocks over the action axis: [A][C] -> [A][channels].
  actionNet(module, x) {
    for (let i = 0; ; i++) {
      const block = `${module}/conv1_d${i ? `_${i}` : ''}`;
      if (!(`${block}/w` in this.weights)) return x;
      const average = x[0].map((_, c) => mean(x.map((channels) => channels[c])));
      x = x.map((channels) =>
        this.layer(block, channels.concat(average)).map(relu));
    }
  }

  // Returns by Retrace, advantages, and the moments after this batch.
  estimate(scene, moments) {
    const { discount, lambda, rewardScale, momentsDecay } = this.settings;
    const value = scene.q.map((q, t) => dot(scene.policy[t], q));
    const length = scene.reward.length;
    const returns = new Array(length);
    for (let t = length - 1; t >= 0; t--) {
      const action = scene.action[t + 1];
      // The behavior policy is the policy: every ratio is one.
      const correction = t + 1 < length
        ? lambda * (returns[t + 1] - scene.q[t + 1][action]) : 0;
      returns[t] = rewardScale * scene.reward[t]
        + (scene.end[t] ? 0 : discount * (value[t + 1] + correction));
    }
    const advantage = returns.map((g, t) => g - value[t]);
    const decay = momentsDecay;
    moments = {
      first: decay * moments.first + (1 - decay) * mean(advantage),
      second: decay * moments.second
        + (1 - decay) * mean(advantage.map((x) => x * x)),
      decayProduct: decay * moments.decayProduct,
    };
    const debias = 1 / (1 - moments.decayProduct);
    const center = moments.first * debias;
    const variance = Math.max(0, moments.second * debias - center * center);
    const scale = Math.sqrt(variance + 1e-12) + 1e-6;
    const normalize = (x) => (x - center) / scale;
    const qvAdvantage = scene.q.map((q, t) => q.map((x) => x - value[t]));
    return {
      value, returns, advantage, qvAdvantage, moments,
      normalizedAdvantage: advantage.map(normalize),
      normalizedQvAdvantage: qvAdvantage.map((x) => x.map(normalize)),
    };
  }

  // The 27 numbers of a step (fewer in variants), and the policy embedding.
  features(scene, estimates, t, prefix) {
    const { policy, action, q } = scene;
    const hasQ = this.settings.hasQ;
    const pair = (f) => [f(t), f(t + 1)];
    const taken = policy[t][action[t]];
    const step = [
      taken, taken, signLog(this.settings.rewardScale * scene.reward[t]),
      scene.end[t] ? 0 : 1,
    ];
    if (hasQ) {
      step.push(...pair((s) => signLog(estimates.value[s])));
      step.push(signLog(estimates.advantage[t]));
      step.push(estimates.normalizedAdvantage[t]);
    }
    step.push(taken);
    const embedded = { y: 0, z: 0 };
    if (this.hasPredictions) {
      // Predictions are uniform, and the target network's are the same.
      const uniform = new Array(this.predictionSize).fill(0);
      embedded.y = this.embed(`${prefix}mlp`, uniform);
      embedded.z = this.embed(`${prefix}mlp_1`, uniform);
      const { y, z } = embedded;
      step.push(y, y, y, y, z, z, z, z, z, z, z, z, z, z);
    }
    const channels = policy[t].map((p, a) => [
      p, p, p,
      ...(this.hasPredictions ? [embedded.z, embedded.z] : []),
      ...(hasQ ? [
        signLog(q[t][a]), signLog(estimates.qvAdvantage[t][a]),
        estimates.normalizedQvAdvantage[t][a],
      ] : []),
      a === action[t] ? 1 : 0,
    ]);
    const embedding = this.actionNet(`${prefix}sequential`, channels);
    const average = embedding[0].map((_, c) => mean(embedding.map((x) => x[c])));
    return { step: step.concat(average, embedding[action[t]]), embedding };
  }

  // One application: targets, and the state after it.
  apply(scene, state) {
    const estimates = this.estimate(scene, state.moments);
    const length = scene.reward.length;
    const steps = scene.reward.map((_, t) =>
      this.features(scene, estimates, t, 'lstm/'));
    const size = this.weights['lstm/lstm/linear/w'].columns / 4;
    const zeros = () => ({
      hidden: new Array(size).fill(0), cell: new Array(size).fill(0),
    });
    const gate = this.hasMetaRnn
      ? this.layer('lstm/linear', state.hidden) : new Array(size).fill(1);
    const pi = [], y = [], z = [], summary = [];
    let core = zeros();
    for (let t = length - 1; t >= 0; t--) {
      core = this.lstmStep('lstm/lstm', steps[t].step, scene.end[t] ? zeros() : core);
      const x = core.hidden.map((h, i) => h * gate[i]);
      const perAction = this.actionNet(
        'lstm/sequential_1', steps[t].embedding.map((c) => x.concat(c)));
      pi[t] = perAction.map((c) => this.layer('lstm/linear_4', c)[0]);
      if (this.hasPredictions) {
        y[t] = this.layer('lstm/linear_2', x);
        z[t] = this.layer('lstm/linear_3', x);
      }
      if (this.hasMetaRnn) summary[t] = this.layer('lstm/linear_1', x);
    }
    return {
      pi, y, z, estimates,
      state: { ...this.nextMetaRnn(scene, estimates, y, summary, state),
        moments: estimates.moments },
    };
  }

  nextMetaRnn(scene, estimates, y, summary, state) {
    if (!this.hasMetaRnn) return state;
    const prefix = 'lstm/~/meta_lstm/~unroll/';
    const inputs = summary.map((embedding, t) => {
      const x = this.features(scene, estimates, t, prefix).step.concat(embedding);
      if (this.hasPredictions) x.push(this.embed(`${prefix}mlp`, y[t]));
      return this.layer(`${prefix}mlp_2/~/linear_0`, x);
    });
    const average = inputs[0].map((_, i) => mean(inputs.map((x) => x[i])));
    return this.lstmStep(`${prefix}lstm`, average, state);
  }

  // The targets after `times` applications to the same trajectory, by which the
  // meta-RNN and the scale of advantages settle.
  targets(scene, times) {
    let state = this.initialState();
    for (let i = 0; i < times; i++) state = this.apply(scene, state).state;
    return this.apply(scene, state);
  }
}

// The policy gradient as a target: the cross-entropy from it to the policy has
// the gradient of -A log pi(a). It can leave the simplex, and is clipped to it.
function policyGradientTarget(policy, action, advantage) {
  return policy.map((p, a) =>
    Math.min(1, Math.max(0, p + advantage * ((a === action ? 1 : 0) - p))));
}
