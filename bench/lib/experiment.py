# SPDX-License-Identifier: BSD-2-Clause
"""Experiments and what is asked of them.

An experiment runs its contenders in turn, round after round, so that whatever the machine does
meets all of them. A row of the final table compares the medians of one contender of ours with the
best of the peer's settings.
"""

import contextlib
import statistics


class Experiment:
    """`place`: a context that the contenders run in; what it cannot make raises procs.Skipped.
    `loads`: some of its contenders run beside load that it makes (load.py), and the others must
    not."""

    def __init__(self, key, title, contenders, rounds_factor=1, place=None, loads=False):
        self.key = key
        self.title = title
        self.contenders = contenders  # name -> function that returns a dict of figures
        self.rounds_factor = rounds_factor
        self.place = place
        self.loads = loads
        self.samples = {name: [] for name in contenders}

    def run(self, rounds, progress):
        with self.place or contextlib.nullcontext():
            self._take_turns(rounds, progress)

    def _take_turns(self, rounds, progress):
        names = list(self.contenders)
        for turn in range(rounds * self.rounds_factor):
            for name in names if turn % 2 == 0 else reversed(names):
                progress.step(f'{self.title}, round {turn + 1}: {name}')
                self.samples[name].append(self.contenders[name]())

    def steps(self, rounds):
        return rounds * self.rounds_factor * len(self.contenders)

    def figures(self, name, figure):
        return [sample[figure] for sample in self.samples[name]]

    def median(self, name, figure):
        return statistics.median(self.figures(name, figure))

    def best(self, prefix, figure, least):
        """The contender with the best median among those whose name begins so."""
        names = [name for name in self.samples if name == prefix or name.startswith(prefix + ' [')]
        choose = min if least else max
        return choose(names, key=lambda name: self.median(name, figure))

    def spread(self, name, figure):
        """Half of the range between the quartiles, as a part of the median."""
        values = self.figures(name, figure)
        middle = statistics.median(values)
        if not middle:
            return 0
        if len(values) < 4:
            return (max(values) - min(values)) / 2 / middle
        low, _, high = statistics.quantiles(values, n=4)
        return (high - low) / 2 / middle


class Row:
    """One line of the table. `least`: the smaller the better. Without limits it only informs."""

    def __init__(
        self,
        title,
        experiment,
        ours,
        peer,
        figure,
        unit,
        least=False,
        at_least=None,
        aim=None,
        peer_figure=None,
    ):
        self.title = title
        self.experiment = experiment
        self.ours = ours
        self.peer = peer
        self.figure = figure
        self.peer_figure = peer_figure or figure
        self.unit = unit
        self.least = least
        self.at_least = at_least
        self.aim = aim

    def result(self):
        experiment = self.experiment
        peer = experiment.best(self.peer, self.peer_figure, self.least)
        ours_median = experiment.median(self.ours, self.figure)
        peer_median = experiment.median(peer, self.peer_figure)
        return {
            'measure': self.title,
            'unit': self.unit,
            'ours': ours_median,
            'ours_name': self.ours,
            'ours_spread': experiment.spread(self.ours, self.figure),
            'peer': peer_median,
            'peer_name': peer,
            'peer_spread': experiment.spread(peer, self.peer_figure),
            'ratio': ours_median / peer_median,
            'less_is_better': self.least,
            'at_least': self.at_least,
            'aim': self.aim,
            'met': verdict(ours_median / peer_median, self.at_least, self.aim, self.least),
        }


class Added(Row):
    """What ours takes more than the peer, in its unit; without a peer all that it takes. Less is
    better, and the limits have that unit."""

    def __init__(self, title, experiment, ours, peer, figure, unit, at_least=None, aim=None):
        super().__init__(title, experiment, ours, peer, figure, unit, True, at_least, aim)

    def result(self):
        experiment = self.experiment
        ours = experiment.median(self.ours, self.figure)
        row = {
            'measure': self.title,
            'unit': self.unit,
            'ours': ours,
            'ours_name': self.ours,
            'ours_spread': experiment.spread(self.ours, self.figure),
            'peer': None,
            'ratio': None,
            'added': ours,
            'less_is_better': True,
            'at_least': self.at_least,
            'aim': self.aim,
        }
        if self.peer:
            peer = experiment.best(self.peer, self.figure, True)
            row |= {
                'peer': experiment.median(peer, self.figure),
                'peer_name': peer,
                'peer_spread': experiment.spread(peer, self.figure),
            }
            row['added'] -= row['peer']
        return row | {'met': verdict(row['added'], self.at_least, self.aim, True)}


def verdict(value, at_least, aim, least):
    if at_least is None:
        return 'for information'

    def reaches(limit):
        return value <= limit if least else value >= limit

    if reaches(aim):
        return 'aim'
    return 'yes' if reaches(at_least) else 'NO'
